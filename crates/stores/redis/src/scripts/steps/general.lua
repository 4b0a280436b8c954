-- The steps of locks: claim, renew, raise, release, back, withdraw, evict, check.
--
-- KEYS[i]            the state of the name of step i: all there is of a lock
-- ARGV[i]            step i, packed
-- ARGV[#KEYS + 1]    prefix of the channels on which clients are told of grants
-- ARGV[#KEYS + 2]    channel of events
-- ARGV[#KEYS + 3]    how clients are told: g = the grant itself, h = a hint, s = a hint by sharded pub/sub
-- ARGV[#KEYS + 4]    for how many ms an idle name is remembered
-- ARGV[#KEYS + 5]    strict mode: id of this run of the server, or empty
-- ARGV[#KEYS + 6]    strict mode: the key that tells whether the data are those of this run
-- ARGV[#KEYS + 7]    strict mode: the longest lease + lock-delay in ms; after a loss nothing is
--                    granted for so long
-- ARGV[#KEYS + 8]    the key of the highest number; on a cluster that of the slot
-- ARGV[#KEYS + 9]    the highest number at the server that gives the slot to this one, if one does, else empty
--
-- The reply is one packed string for each step, and then this server's time in ms since 2020.
-- docs/stores/redis.md explains the state.
--
-- The text is two files in a row. This one has the general case, as functions that are made only when
-- they are needed, because making them costs more than a step. The other one has the loop over the
-- steps, and short cuts for a mutex.
--
-- A lock is one key, because a slot of a cluster moves key by key, and because a lock of several keys
-- can lose some of them. The key is a string, because reading and writing a short string is the
-- cheapest thing that Redis does. It has two forms, after one letter:
--
--   M    a mutex that nobody waits for: last number, when the key ends, until when some ended claim must be
--        remembered, bytes of what is remembered, and of the predecessor in it; then the predecessor
--        (number, ending, owner) and ended claims (request, lower half of the number, ending, until when
--        it must be remembered); then the record of the holder, if there is one
--   G    anything else: the same, but instead of the one record: limit, units taken, holders, waiters, bytes
--        of the holders' records, the first and the last end of a lease, when this was written; then the
--        records of the holders and those of the waiters in their order, each after its length
--
-- The end of the key is moved in large steps only, because that costs as much as the rest of a write: a
-- name is remembered for the time asked for, give or take a half.
--
-- A claim says until when this server may apply it as a new one, by this server's clock. A copy that
-- arrives later is refused. A release or a withdrawal says the same of the copies of its claim that had no
-- reply: until then the ended claim is remembered, however many others end meanwhile. So a late copy is
-- refused for one reason or the other, and one clock decides both. Nobody says so of a claim that ends by
-- eviction or because its time is over: it is remembered for as long as any copy sent before may have.
--
-- The number after a name was forgotten is greater than all before, also if this clock was set back, or if
-- a number came from the clock of another server. The highest number of all names is kept for that, in a
-- key of its own, on a cluster in one for each slot: a name without state begins after it. The key is written
-- for each new name, and for the others once a second, because a number that is taken from the clock reserves
-- the next second.
-- A user may have no right to that key, and while a slot moves it may be at the other server (and must not be
-- made here then: it could not be moved). Then a state does not end before this clock has passed its last number.

-- The general case: any number of holders and waiters, leases that ran out, delays.
local function general(now, micros, opens, watched, WAKE, EVENTS, TELL, REMEMBER, HIGHEST, FLOOR)

local unpack, pack, sub, find = struct.unpack, struct.pack, string.sub, string.find
local call = redis.call

local HEAD = '<c1I8I8I8I4I2'
local CROWD = '<I4I8I4I4I4I8I8I8'
-- phase, request, number, since, until, lease, lock-delay, units, length of the details; then the
-- details, of which the first is the owner, and a published value
local RECORD = '<c1c16I8I8I8I4I4I4I2'
-- An ended claim in bytes, and how many are remembered in any case.
local ENDED, REMEMBERED = 29, 8
-- For how many ms after it was sent a copy of a claim may be applied: at most for its lease, or for the first
-- of these if that is longer, whatever timeout its sender has. The sender's idea of this clock may be ahead by
-- the second. After the third no copy is under way any more (src/ledger.rs, src/server_clock.rs).
local SHORTEST, AHEAD, OLD = 2000, 1000, 3600000

local K, S

local function event(kind, record)
  if watched then
    redis.pcall('PUBLISH', EVENTS, kind .. pack('<I8I2', micros, #K) .. K .. record)
  end
end

-- The highest number of all names; false if the key cannot be used.
local function highest()
  local known = redis.pcall('GET', HIGHEST)
  return type(known) ~= 'table' and (tonumber(known) or FLOOR == '' and 0)
end

-- Makes sure that the highest number is not below the last one of this name. Says whether it is not.
local function raised()
  local known = highest()
  if known and known < S.last then
    local number = string.format('%.0f', S.last == micros and S.last + 1000000 or S.last)
    return not redis.pcall('SET', HIGHEST, number).err
  end
  return known
end

local function load(key, state)
  K = key
  S = { limit = 0, taken = 0, held = 0, waiting = 0, first = 0, keep = 0, holders = '', waiters = '' }
  S.last, S.ends, S.kept, S.pseq, S.pending, S.powner, S.ended = 0, 0, 0, 0, '-', '', ''
  if not state then
    S.last = highest() or tonumber(FLOOR) or 0
    S.before = S.last
    return
  end
  local form, memory, predecessor, at, bytes, seen
  form, S.last, S.ends, S.kept, memory, predecessor, at = unpack(HEAD, state)
  S.before = S.last
  if predecessor > 0 then
    S.pseq, S.pending = unpack('<I8c1', state, at)
    S.powner = sub(state, at + 9, at + predecessor - 1)
  end
  S.ended = sub(state, at + predecessor, at + memory - 1)
  at = at + memory
  if form == 'G' then
    S.limit, S.taken, S.held, S.waiting, bytes, S.first, S.keep, seen, at = unpack(CROWD, state, at)
    S.holders, S.waiters = sub(state, at, at + bytes - 1), sub(state, at + bytes)
    S.set_back = now < seen
  elseif form ~= 'M' then
    error('this lock was written by another version of clinch', 0)
  elseif at <= #state then
    local record = sub(state, at)
    local till, lease, delay = unpack('<I8I4I4', record, 34)
    S.limit, S.taken, S.held, S.first, S.keep = 1, 1, 1, till, till + delay
    if sub(record, 1, 1) == 'D' then
      lease, S.keep = delay, till
    end
    S.holders = pack('<I4', #record) .. record
    S.set_back = till > now + lease + 1
  end
end

local function save()
  if not S.dirty then
    return
  end
  local busy = S.held > 0 or S.waiting > 0
  local last = busy and S.keep > now and S.keep or now
  if S.kept > last then
    last = S.kept
  end
  if (S.last > S.before or S.last > micros) and not raised() and S.last > micros and S.last / 1000 > last then
    last = (S.last - S.last % 1000) / 1000 + 1
  end
  local moved = S.ends < last + REMEMBER / 2 or S.ends > last + REMEMBER * 3 / 2
  if moved then
    S.ends = last + REMEMBER
  end
  local predecessor = ''
  if S.pseq > 0 then
    predecessor = pack('<I8c1', S.pseq, S.pending) .. S.powner
  end
  local memory = #predecessor + #S.ended
  local state
  if not busy or S.limit == 1 and S.waiting == 0 then
    state = pack(HEAD, 'M', S.last, S.ends, S.kept, memory, #predecessor) .. predecessor .. S.ended
      .. sub(S.holders, 5)
  else
    state = pack(HEAD, 'G', S.last, S.ends, S.kept, memory, #predecessor) .. predecessor .. S.ended
      .. pack(CROWD, S.limit, S.taken, S.held, S.waiting, #S.holders, S.first, S.keep, now)
      .. S.holders .. S.waiters
  end
  if moved then
    call('SET', K, state, 'PX', S.ends - now)
  else
    call('SET', K, state, 'KEEPTTL')
  end
end

-- Remembers an ended claim. Of those before the last eight only the ones that have to be kept are left.
local function remember(request, seq, ending, keep)
  S.ended = S.ended .. request .. pack('<I4', seq % 4294967296) .. ending .. pack('<I8', keep)
  if keep > S.kept then
    S.kept = keep
  end
  local left, at, newest = {}, 1, #S.ended - ENDED * REMEMBERED + 1
  while at < newest and S.kept > now do
    if unpack('<I8', S.ended, at + 21) > now then
      left[#left + 1] = sub(S.ended, at, at + ENDED - 1)
    end
    at = at + ENDED
  end
  S.ended = table.concat(left) .. sub(S.ended, -ENDED * REMEMBERED)
end

-- How a claim has ended, the lower half of its number, and where it is remembered, if it is.
local function fate(request)
  local at = find(S.ended, request, 1, true)
  if at and at % ENDED == 1 then
    return sub(S.ended, at + 20, at + 20), unpack('<I4', S.ended, at + 16), at
  end
end

-- Makes sure that an ended claim is remembered until then: a copy of it may still arrive.
local function keep_ended(request, ending, keep)
  if keep <= now then
    return
  end
  local known, _, at = fate(request)
  S.dirty = true
  if not known then
    remember(request, 0, ending, keep)
  elseif unpack('<I8', S.ended, at + 21) < keep then
    S.ended = sub(S.ended, 1, at + 20) .. pack('<I8', keep) .. sub(S.ended, at + ENDED)
    if keep > S.kept then
      S.kept = keep
    end
  end
end

-- Where the record of a request is among these, and the record.
local function seek(records, request)
  local at = find(records, request, 1, true)
  if at then
    return at - 5, sub(records, at - 1, at - 2 + unpack('<I4', records, at - 5))
  end
end

-- Calls back with each of these records, and puts together what it gives back.
local function each(records, change)
  local kept, at = {}, 1
  while at <= #records do
    local length = unpack('<I4', records, at)
    local record = change(sub(records, at + 4, at + 3 + length))
    if record then
      kept[#kept + 1] = pack('<I4', #record)
      kept[#kept + 1] = record
    end
    at = at + 4 + length
  end
  return table.concat(kept)
end

-- The first end of a lease among the holders.
local function look_for_first()
  S.first = 0
  each(S.holders, function(record)
    local till = unpack('<I8', record, 34)
    if S.first == 0 or till < S.first then
      S.first = till
    end
  end)
end

-- Puts a record in the place of another one, or nothing.
local function put(which, at, before, record)
  local records = S[which]
  S.dirty = true
  S[which] = sub(records, 1, at - 1) .. (record and pack('<I4', #record) .. record or '')
    .. sub(records, at + 4 + #before)
  if record then
    local till, _, delay = unpack('<I8I4I4', record, 34)
    if sub(record, 1, 1) == 'H' then
      till = till + delay
    end
    if till > S.keep then
      S.keep = till
    end
  end
  if which == 'holders' then
    look_for_first()
  end
end

-- What is left of a hold or of a place in the queue when it ends: nothing, or a delay.
local function ended(record, ending, when, keep)
  local phase, request, seq, since, till, lease, delay, units, details, at = unpack(RECORD, record)
  -- Its client has not ended it, and may never hear of it: all its copies were sent before now.
  keep = keep or now + math.min(math.max(lease, SHORTEST), OLD) + AHEAD
  S.dirty = true
  if phase == 'W' then
    event(ending == 'r' and 'w' or ending, record)
    remember(request, seq, ending, keep)
    S.waiting = S.waiting - 1
    return
  end
  if phase == 'H' then
    event(ending, record)
    remember(request, seq, ending, keep)
    S.pseq, S.pending, S.powner = seq, ending, unpack('<I2c0', record, at)
    if ending ~= 'r' and delay > 0 and when + delay > now then
      if when + delay > S.keep then
        S.keep = when + delay
      end
      return pack(RECORD, 'D', request, seq, when, when + delay, lease, delay, units, details)
        .. sub(record, at)
    end
  elseif phase == 'P' and ending ~= 'x' then
    -- Half a claim: nobody held it, so nobody is told of it.
    remember(request, seq, ending, keep)
  end
  S.held, S.taken = S.held - 1, S.taken - units
end

local function finish(which, at, record, ending, keep)
  put(which, at, record, ended(record, ending, now, keep))
end

-- The server's clock was set back since this was written. No lease ends later than its length from
-- now: else a dead holder's lock, or a dead waiter's place, would be taken for as long as the step.
local function shorten()
  local function shortened(record)
    local phase, request, seq, since, till, lease, delay, units, details, at = unpack(RECORD, record)
    local longest = now + (phase == 'D' and delay or lease) + 1
    if till <= longest then
      return record
    end
    return pack(RECORD, phase, request, seq, now, longest, lease, delay, units, details)
      .. sub(record, at)
  end
  S.dirty = true
  S.holders, S.waiters = each(S.holders, shortened), each(S.waiters, shortened)
  look_for_first()
end

-- Ends what has run out.
local function expire()
  if S.set_back then
    shorten()
  end
  if S.held > 0 and S.first <= now then
    S.holders = each(S.holders, function(record)
      local till = unpack('<I8', record, 34)
      if till > now then
        return record
      end
      return ended(record, 'x', till)
    end)
    look_for_first()
  end
end

local function retry_after()
  local left = S.held > 0 and S.first - now or 0
  if opens and (left == 0 or opens - now < left) then
    left = opens - now
  end
  return left
end

-- What a grantee hears.
local function granted(seq)
  if S.pseq > 0 and S.pseq < seq then
    return 'G' .. pack('<I8I8c1', seq, S.pseq, S.pending) .. S.powner
  end
  return 'G' .. pack('<I8I8c1', seq, 0, '-')
end

local function grant(phase, request, lease, delay, units, details, rest)
  S.last = S.last + 1
  if micros > S.last then
    S.last = micros
  else
    -- Ahead of this clock: after those of all names, so that no other one has the same number.
    local known = highest()
    S.last = known and known >= S.last and known + 1 or S.last
  end
  local till = now + lease + 1
  local record = pack(RECORD, phase, request, S.last, now, till, lease, delay, units, details) .. rest
  S.dirty = true
  S.held, S.taken = S.held + 1, S.taken + units
  S.holders = S.holders .. pack('<I4', #record) .. record
  if S.first == 0 or till < S.first then
    S.first = till
  end
  if till + delay > S.keep then
    S.keep = till + delay
  end
  if phase == 'H' then
    event('g', record)
  end
  return S.last
end

-- The channel of the client that a request is of.
local function channel(prefix, request)
  return prefix .. string.format('%08x%08x', unpack('>I4I4', request))
end

-- Grants from the head of the queue as long as there is room; `me` gets its grant as the reply.
local function settle(me)
  local mine
  local at = 1
  while at <= #S.waiters and not opens do
    local length = unpack('<I4', S.waiters, at)
    local record = sub(S.waiters, at + 4, at + 3 + length)
    local _, request, _, _, till, lease, delay, units, details, rest = unpack(RECORD, record)
    if till <= now then
      ended(record, 'x', till)
    elseif S.taken + units > S.limit then
      break
    else
      S.waiting = S.waiting - 1
      local seq = grant('H', request, lease, delay, units, details, sub(record, rest))
      if request == me then
        mine = granted(seq)
      elseif TELL == 'g' then
        redis.pcall('PUBLISH', channel(WAKE, request), request .. granted(seq))
      elseif TELL == 'h' then
        redis.pcall('PUBLISH', channel(WAKE, request), request)
      else
        redis.pcall('SPUBLISH', channel(K .. ':', request), request)
      end
    end
    at = at + 4 + length
  end
  if at > 1 then
    S.waiters = sub(S.waiters, at)
  end
  return mine
end

-- Who waits with this request; one that has run out waits no more, wherever it stands.
local function waiter(request)
  local at, record = seek(S.waiters, request)
  if record and unpack('<I8', record, 34) <= now then
    finish('waiters', at, record, 'x')
    return
  end
  return at, record
end

-- How many stand before this place; where they are very many, about how many.
local function ahead(place)
  if place > 65536 then
    return math.floor(S.waiting * place / #S.waiters)
  end
  local count, at = 0, 1
  while at < place do
    count, at = count + 1, at + 4 + unpack('<I4', S.waiters, at)
  end
  return count
end

local function lost(request)
  return fate(request) or 'f'
end

-- The record with a lease that ends no sooner.
local function extended(record, lease)
  local phase, request, seq, since, till, before, delay, units, details, at = unpack(RECORD, record)
  if lease > before then
    before = lease
  end
  if now + lease + 1 > till then
    till = now + lease + 1
  end
  return pack(RECORD, phase, request, seq, since, till, before, delay, units, details)
    .. sub(record, at)
end

local function claim(step)
  local _, request, after, latest, limit, queue, lease, delay, units, details, rest =
    unpack('<c1c16I8I8I4BI4I4I4I2', step)
  if after > S.last then
    -- The client has seen a greater number than this server, which has lost its data.
    S.last = after
  end
  expire()
  local at, record = seek(S.holders, request)
  if record then
    if sub(record, 1, 1) == 'D' then
      local why = lost(request)
      keep_ended(request, why, latest)
      return 'X' .. why
    end
    put('holders', at, record, extended(record, lease))
    settle()
    return granted((unpack('<I8', record, 18)))
  end
  at, record = waiter(request)
  if record then
    put('waiters', at, record, extended(record, lease))
    local mine = settle(request)
    if mine then
      return mine
    end
    return 'Q' .. pack('<I4I8', ahead((seek(S.waiters, request))), retry_after())
  end
  local gone = fate(request)
  settle()
  if gone then
    -- Its client uses another request from now on. Copies of this one may still be under way.
    keep_ended(request, gone, latest)
    return 'X' .. gone
  end
  if now > latest then
    return 'T' .. pack('<I8', now)
  end
  if S.held == 0 and S.waiting == 0 then
    S.limit, S.taken, S.first, S.keep = limit, 0, 0, 0
  elseif S.limit ~= limit then
    return 'M' .. pack('<I4', S.limit)
  end
  if S.waiting == 0 and S.taken + units <= S.limit and not opens then
    -- 2: half a claim, on one of several servers; the step `raise` makes a hold of it.
    local phase = queue == 2 and 'P' or 'H'
    return granted(grant(phase, request, lease, delay, units, details, sub(step, rest)))
  end
  if queue ~= 1 then
    return 'B' .. pack('<I8', retry_after())
  end
  local till = now + lease + 1
  record = pack(RECORD, 'W', request, 0, now, till, lease, delay, units, details) .. sub(step, rest)
  S.dirty = true
  S.waiting, S.waiters = S.waiting + 1, S.waiters .. pack('<I4', #record) .. record
  if till > S.keep then
    S.keep = till
  end
  event('q', record)
  return 'Q' .. pack('<I4I8', S.waiting - 1, retry_after())
end

-- The live hold with this request and number.
local function matching(request, seq)
  local at, record = seek(S.holders, request)
  if record and sub(record, 1, 1) == 'H' and unpack('<I8', record, 18) == seq then
    return at, record
  end
end

local function renew(step)
  local _, request, seq, lease, published, value = unpack('<c1c16I8I4B', step)
  expire()
  local at, record = matching(request, seq)
  local reply = 'H'
  if record then
    local _, _, _, since, _, _, delay, units, details, rest = unpack(RECORD, record)
    rest = sub(record, rest)
    if published == 1 then
      rest = sub(rest, 1, details) .. '\1' .. sub(step, value)
    end
    local renewed = pack(RECORD, 'H', request, seq, since, now + lease + 1, lease, delay, units, details)
      .. rest
    put('holders', at, record, renewed)
    if published == 1 then
      event('p', renewed)
    end
  else
    reply = 'X' .. lost(request)
  end
  settle()
  return reply
end

-- The second half of a claim on several servers: a hold, with the number that all of them give it and
-- the whole lease. A vote takes a number that is greater than all that this server has given, or is
-- what it gave to this very claim. Without a vote the number has won already, and is written down.
local function raise(step)
  local _, request, from, to, lease, vote = unpack('<c1c16I8I8I4B', step)
  expire()
  local at, record = seek(S.holders, request)
  if not record or sub(record, 1, 1) == 'D' then
    return 'X' .. lost(request)
  end
  local phase, _, seq, since, _, _, delay, units, details, rest = unpack(RECORD, record)
  if vote == 1 then
    if seq > to or seq < to and S.last >= to then
      return 'L' .. pack('<I8', S.last)
    end
  elseif seq ~= from and seq ~= to then
    return 'Xf'
  end
  if to > S.last then
    S.last = to
  end
  local raised = pack(RECORD, 'H', request, to, since, now + lease + 1, lease, delay, units, details)
    .. sub(record, rest)
  put('holders', at, record, raised)
  if phase == 'P' then
    event('g', raised)
  end
  return 'H'
end

-- Half a claim, or a hold that its claimant never heard of, is given back without a trace.
local function back(step)
  local _, request, one, other = unpack('<c1c16I8I8', step)
  expire()
  local at, record = seek(S.holders, request)
  if record and sub(record, 1, 1) ~= 'D' then
    local phase, _, seq, _, _, _, _, units = unpack(RECORD, record)
    if seq == one or seq == other then
      S.held, S.taken = S.held - 1, S.taken - units
      put('holders', at, record)
      if phase == 'H' then
        event('r', record)
      end
    end
  end
  settle()
  return 'H'
end

local function release(step)
  local _, request, seq, keep = unpack('<c1c16I8I8', step)
  expire()
  local at, record = matching(request, seq)
  local reply = 'H'
  if record then
    finish('holders', at, record, 'r', keep)
  else
    -- Our own release, whose reply was lost, is one more time a release.
    local ending, number = fate(request)
    if ending ~= 'r' or number ~= seq % 4294967296 then
      reply = 'X' .. (ending or 'f')
    end
    keep_ended(request, ending or 'f', keep)
  end
  settle()
  return reply
end

local function withdraw(step)
  local _, request, keep = unpack('<c1c16I8', step)
  expire()
  local which = 'holders'
  local at, record = seek(S.holders, request)
  if record and sub(record, 1, 1) == 'D' then
    record = nil
  elseif not record then
    which = 'waiters'
    at, record = waiter(request)
  end
  if record then
    finish(which, at, record, 'r', keep)
  elseif not fate(request) then
    -- It has not arrived yet: it is to find itself refused when it does.
    remember(request, 0, 'r', keep)
    S.dirty = true
  else
    keep_ended(request, 'r', keep)
  end
  settle()
  return 'H'
end

local function evict(step)
  local _, seq = unpack('<c1I8', step)
  local reply, held = 'E', false
  expire()
  each(S.holders, function(record)
    held = held or sub(record, 1, 1) == 'H'
  end)
  S.holders = each(S.holders, function(record)
    local phase, _, number, _, _, _, _, units = unpack(RECORD, record)
    if seq ~= 0 and number ~= seq then
      return record
    end
    if phase == 'H' then
      reply = reply .. 'H' .. pack('<I8', number)
      return ended(record, 'e', now)
    end
    if phase == 'D' and (seq ~= 0 or not held) then
      -- Its hold has ended already; now its delay does.
      reply = reply .. 'D' .. pack('<I8', number)
      S.dirty = true
      S.held, S.taken = S.held - 1, S.taken - units
      return
    end
    return record
  end)
  look_for_first()
  settle()
  return reply
end

local function check(step)
  local _, seq = unpack('<c1I8', step)
  local reply = 'Xf'
  each(S.holders, function(record)
    local phase, _, number, _, till = unpack('<c1c16I8I8I8', record)
    if phase == 'H' and number == seq and till > now then
      reply = 'H'
    end
  end)
  return reply
end

local steps = {
  c = claim, n = renew, t = raise, r = release, b = back, w = withdraw, e = evict, k = check,
}

return function(key, state, step)
  load(key, state)
  local reply = steps[sub(step, 1, 1)](step)
  save()
  return reply
end

end

