-- The steps of locks: claim, renew, raise, release, withdraw, evict, check.
--
-- KEYS[i]            the state of the name of step i; its other keys have this one as prefix
-- ARGV[i]            step i, packed
-- ARGV[#KEYS + 1]    prefix of the channels on which clients are told of grants
-- ARGV[#KEYS + 2]    channel of events
-- ARGV[#KEYS + 3]    how clients are told: g = the grant itself, h = a hint, s = a hint by sharded pub/sub
-- ARGV[#KEYS + 4]    for how many ms an idle name is remembered
-- ARGV[#KEYS + 5]    strict mode: id of this run of the server, or empty
-- ARGV[#KEYS + 6]    strict mode: the key that tells whether the data are those of this run
-- ARGV[#KEYS + 7]    strict mode: the longest lease + lock-delay in ms; after a loss nothing is
--                    granted for so long
--
-- The reply is one packed string for each step. docs/stores/redis.md explains the keys.
--
-- The text is two files in a row. This one has the general case, as functions that are made only when
-- they are needed, because making them costs more than a step. The other one has the loop over the
-- steps, and the short cut for a mutex that nobody else wants.

-- The general case: any number of holders and waiters, leases that ran out, delays.
local function general(now, micros, opens, other, WAKE, EVENTS, TELL, REMEMBER)

local unpack, pack, sub, find = struct.unpack, struct.pack, string.sub, string.find
local call = redis.call

-- The state of a name has two forms, after one letter. "m" is a mutex without waiters: last number,
-- predecessor (number, ending, owner), ended claims; then the record of the holder, if there is one.
-- "g" is everything else: the same, and limit, last ticket, units taken, holders, waiters, the latest
-- end of a lease, and how long the side keys live. Lengths stand before texts.
local SIMPLE = '<c1I8I8c1I2c0I2c0'
local STATE = SIMPLE .. 'I4I8I8I4I4I8I8'
-- phase, request, number, since, until, lease, lock-delay, units, length of the details
local RECORD = '<c1c16I8I8I8I4I4I4I2'
-- An ended claim (request, the lower half of its number, ending) in bytes, and how many are kept.
local ENDED, REMEMBERED = 21, 8

local K, S

local watched
local function event(kind, record)
  if watched == nil then
    watched = call('PUBSUB', 'NUMSUB', EVENTS)[2] > 0
  end
  if watched then
    redis.pcall('PUBLISH', EVENTS, kind .. pack('<I8I2', micros, #K) .. K .. record)
  end
end

local function load(key, state)
  K = key
  S = { limit = 0, ticket = 0, taken = 0, holders = 0, waiters = 0, keep = 0, side = 0, sole = '' }
  if not state then
    S.last, S.pseq, S.pending, S.powner, S.ended = 0, 0, '-', '', ''
    return
  end
  local form, at
  form, S.last, S.pseq, S.pending, S.powner, S.ended, at = unpack(SIMPLE, state)
  if form == 'g' then
    S.limit, S.ticket, S.taken, S.holders, S.waiters, S.keep, S.side, at =
      unpack('<I4I8I8I4I4I8I8', state, at)
  elseif form ~= 'm' then
    error('this lock was written by another version of clinch', 0)
  elseif at <= #state then
    S.limit, S.taken, S.holders, S.keep = 1, 1, 1, unpack('<I8', state, at + 33)
  end
  S.sole = sub(state, at)
end

local function save()
  if not S.dirty then
    return
  end
  local ttl = REMEMBER
  if S.holders > 0 or S.waiters > 0 then
    if S.keep > now then
      ttl = ttl + S.keep - now
    end
    if S.limit > 1 or S.waiters > 0 then
      call('SET', K,
        pack(STATE, 'g', S.last, S.pseq, S.pending, #S.powner, S.powner, #S.ended, S.ended,
          S.limit, S.ticket, S.taken, S.holders, S.waiters, S.keep, S.side) .. S.sole,
        'PX', ttl)
      return
    end
  end
  call('SET', K,
    pack(SIMPLE, 'm', S.last, S.pseq, S.pending, #S.powner, S.powner, #S.ended, S.ended) .. S.sole,
    'PX', ttl)
end

-- Side keys live as long as the state does; their ends are moved in large steps.
local function keep_until(till, fresh, one, other)
  if till > S.keep then
    S.keep = till
  end
  if S.keep + REMEMBER > S.side then
    S.side = S.keep + 2 * REMEMBER
    for _, key in ipairs({ ':q', ':w', ':h', ':x' }) do
      call('PEXPIRE', K .. key, S.side - now)
    end
  elseif fresh then
    call('PEXPIRE', K .. one, S.side - now)
    call('PEXPIRE', K .. other, S.side - now)
  end
end

local function remember(request, seq, ending)
  S.ended = sub(S.ended .. request .. pack('<I4', seq % 4294967296) .. ending, -ENDED * REMEMBERED)
end

-- How a claim has ended, and the lower half of its number, if it has.
local function fate(request)
  local at = find(S.ended, request, 1, true)
  if at and at % ENDED == 1 then
    return sub(S.ended, at + 20, at + 20), unpack('<I4', S.ended, at + 16)
  end
end

-- The channel of the client that a request is of.
local function channel(prefix, request)
  return prefix .. string.format('%08x%08x', unpack('>I4I4', request))
end

-- A mutex has its holder in the state; shared names have theirs in a hash, ordered by a set.
local function holder(request)
  if S.limit == 1 then
    return S.holders > 0 and sub(S.sole, 2, 17) == request and S.sole
  end
  return S.holders > 0 and call('HGET', K .. ':h', request)
end

local function put_holder(request, record, till)
  S.dirty = true
  if S.limit == 1 then
    S.sole = record
    if till > S.keep then
      S.keep = till
    end
  else
    call('HSET', K .. ':h', request, record)
    call('ZADD', K .. ':x', till, request)
    keep_until(till, S.holders == 1, ':h', ':x')
  end
end

local function drop_holder(request, units)
  S.dirty = true
  S.holders, S.taken = S.holders - 1, S.taken - units
  if S.limit == 1 then
    S.sole = ''
  else
    call('HDEL', K .. ':h', request)
    call('ZREM', K .. ':x', request)
  end
end

local function put_waiter(request, record, till)
  S.dirty = true
  call('HSET', K .. ':w', request, record)
  keep_until(till, S.waiters == 1, ':q', ':w')
end

-- Ends a hold or a place in the queue; an unclean end of a hold may leave a delay.
local function finish(record, ending, when)
  local phase, request, seq, since, till, lease, delay, units, details, at = unpack(RECORD, record)
  S.dirty = true
  if phase == 'D' then
    return drop_holder(request, units)
  end
  remember(request, seq, ending)
  if phase == 'W' then
    event(ending == 'r' and 'w' or ending, record)
    call('ZREM', K .. ':q', request)
    call('HDEL', K .. ':w', request)
    S.waiters = S.waiters - 1
    return
  end
  event(ending, record)
  S.pseq, S.pending, S.powner = seq, ending, unpack('<I2c0', record, at)
  if ending ~= 'r' and delay > 0 then
    put_holder(request,
      pack(RECORD, 'D', request, seq, when, when + delay, lease, delay, units, details)
        .. sub(record, at), when + delay)
  else
    drop_holder(request, units)
  end
end

-- No lease ends later than its length from now: if one seems to, the server's clock was set back.
local function clamped(record)
  local phase, request, seq, since, till, lease, delay, units, details, at = unpack(RECORD, record)
  local longest = now + (phase == 'D' and delay or lease) + 1
  if till <= longest then
    return till, record
  end
  record = pack(RECORD, phase, request, seq, now, longest, lease, delay, units, details)
    .. sub(record, at)
  put_holder(request, record, longest)
  return longest, record
end

-- Ends what has run out.
local function expire()
  while S.holders > 0 do
    local record = S.sole
    if S.limit ~= 1 then
      local first = call('ZRANGE', K .. ':x', 0, 0)[1]
      record = first and call('HGET', K .. ':h', first)
      if not record then
        -- Side keys were lost, for example evicted from memory.
        call('DEL', K .. ':h', K .. ':x')
        S.holders, S.taken, S.dirty = 0, 0, true
        return
      end
    end
    local till
    till, record = clamped(record)
    if till > now then
      return
    end
    finish(record, 'x', till)
  end
end

local function retry_after()
  local left = 0
  if S.holders > 0 then
    if S.limit == 1 then
      left = unpack('<I8', S.sole, 34) - now
    else
      left = tonumber(call('ZRANGE', K .. ':x', 0, 0, 'WITHSCORES')[2]) - now
    end
  end
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

local function grant(request, lease, delay, units, details, rest, after)
  S.last = S.last + 1
  if micros > S.last then
    S.last = micros
  end
  if after > S.last then
    S.last = after
  end
  S.holders, S.taken = S.holders + 1, S.taken + units
  local record = pack(RECORD, 'H', request, S.last, now, now + lease + 1, lease, delay, units, details)
    .. rest
  put_holder(request, record, now + lease + 1)
  event('g', record)
  return S.last
end

-- Grants from the head of the queue as long as there is room; `me` gets its grant as the reply.
local function settle(me)
  local mine
  while S.waiters > 0 and not opens do
    local first = call('ZRANGE', K .. ':q', 0, 0)[1]
    local record = first and call('HGET', K .. ':w', first)
    if not record then
      call('DEL', K .. ':q', K .. ':w')
      S.waiters, S.dirty = 0, true
      return mine
    end
    local _, request, _, _, till, lease, delay, units, details, at = unpack(RECORD, record)
    if till <= now then
      finish(record, 'x', till)
    elseif S.taken + units > S.limit then
      return mine
    else
      call('ZREM', K .. ':q', first)
      call('HDEL', K .. ':w', first)
      S.waiters = S.waiters - 1
      local seq = grant(request, lease, delay, units, details, sub(record, at), 0)
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
  end
  return mine
end

local function lost(request)
  return fate(request) or 'f'
end

local function claim(step)
  local _, request, lease, delay, units, wanted, queue, after, details, at =
    unpack('<c1c16I4I4I4I4BI8I2', step)
  if other then
    -- Its pause would be too short for leases of others, or theirs for its own.
    error(other, 0)
  end
  expire()
  local held = holder(request)
  if held then
    local phase, _, seq, since, till, before, _, _, _, rest = unpack(RECORD, held)
    if phase == 'D' then
      return 'X' .. lost(request)
    end
    if lease > before then
      before = lease
    end
    if now + lease + 1 > till then
      till = now + lease + 1
    end
    put_holder(request,
      pack(RECORD, 'H', request, seq, since, till, before, unpack('<I4I4I2', held, 46))
        .. sub(held, rest), till)
    settle()
    return granted(seq)
  end
  local waiting = S.waiters > 0 and call('HGET', K .. ':w', request)
  if waiting then
    local _, _, _, since, till, before, _, _, _, rest = unpack(RECORD, waiting)
    if lease > before then
      before = lease
    end
    if now + lease + 1 > till then
      till = now + lease + 1
    end
    put_waiter(request,
      pack(RECORD, 'W', request, 0, since, till, before, unpack('<I4I4I2', waiting, 46))
        .. sub(waiting, rest), till)
    local mine = settle(request)
    if mine then
      return mine
    end
    return 'Q' .. pack('<I4I8', call('ZRANK', K .. ':q', request) or 0, retry_after())
  end
  local gone = fate(request)
  if gone then
    return 'X' .. gone
  end
  settle()
  if S.holders == 0 and S.waiters == 0 then
    S.limit = wanted
  elseif S.limit ~= wanted then
    return 'M' .. pack('<I4', S.limit)
  end
  if S.waiters == 0 and S.taken + units <= S.limit and not opens then
    return granted(grant(request, lease, delay, units, details, sub(step, at), after))
  end
  if queue == 0 then
    return 'B' .. pack('<I8', retry_after())
  end
  S.ticket, S.waiters = S.ticket + 1, S.waiters + 1
  local till = now + lease + 1
  local record = pack(RECORD, 'W', request, 0, now, till, lease, delay, units, details)
    .. sub(step, at)
  call('ZADD', K .. ':q', S.ticket, request)
  put_waiter(request, record, till)
  event('q', record)
  return 'Q' .. pack('<I4I8', S.waiters - 1, retry_after())
end

-- The live hold with this request and number.
local function matching(request, seq)
  local held = holder(request)
  if held and sub(held, 1, 1) == 'H' and unpack('<I8', held, 18) == seq then
    return held
  end
end

local function renew(step)
  local _, request, seq, lease, published, value = unpack('<c1c16I8I4B', step)
  expire()
  local held = matching(request, seq)
  local reply = 'H'
  if held then
    local _, _, _, since, _, _, delay, units, details, at = unpack(RECORD, held)
    local rest = sub(held, at)
    if published == 1 then
      rest = sub(rest, 1, details) .. '\1' .. sub(step, value)
    end
    local till = now + lease + 1
    held = pack(RECORD, 'H', request, seq, since, till, lease, delay, units, details) .. rest
    put_holder(request, held, till)
    if published == 1 then
      event('p', held)
    end
  else
    reply = 'X' .. lost(request)
  end
  settle()
  return reply
end

-- Renews a hold and gives it a number that is at least as great as it has: the second round of a
-- grant by several servers.
local function raise(step)
  local _, request, seq, lease = unpack('<c1c16I8I4', step)
  expire()
  local held = holder(request)
  if not held or sub(held, 1, 1) ~= 'H' then
    return 'X' .. lost(request)
  end
  local _, _, before, since, _, _, delay, units, details, at = unpack(RECORD, held)
  if before > seq then
    return 'Xf'
  end
  if seq > S.last then
    S.last = seq
  end
  local till = now + lease + 1
  put_holder(request,
    pack(RECORD, 'H', request, seq, since, till, lease, delay, units, details) .. sub(held, at),
    till)
  return 'H'
end

local function release(step)
  local _, request, seq = unpack('<c1c16I8', step)
  expire()
  local held = matching(request, seq)
  local reply = 'H'
  if held then
    finish(held, 'r', now)
  else
    -- Our own release, whose reply was lost, is one more time a release.
    local ending, number = fate(request)
    if ending ~= 'r' or number ~= seq % 4294967296 then
      reply = 'X' .. (ending or 'f')
    end
  end
  settle()
  return reply
end

local function withdraw(step)
  local _, request = unpack('<c1c16', step)
  expire()
  local record = holder(request)
  if record and sub(record, 1, 1) == 'D' then
    record = nil
  end
  record = record or S.waiters > 0 and call('HGET', K .. ':w', request)
  if record then
    finish(record, 'r', now)
  elseif not fate(request) then
    -- It has not arrived yet: it is to find itself refused when it does.
    remember(request, 0, 'r')
    S.dirty = true
  end
  settle()
  return 'H'
end

local function evict(step)
  local _, seq = unpack('<c1I8', step)
  expire()
  local meant, reply = { S.sole }, 'E'
  if S.limit ~= 1 then
    meant = S.holders > 0 and call('HVALS', K .. ':h') or {}
  end
  for _, record in ipairs(meant) do
    if record ~= '' and sub(record, 1, 1) == 'H' then
      local number = unpack('<I8', record, 18)
      if seq == 0 or number == seq then
        finish(record, 'e', now)
        reply = reply .. pack('<I8', number)
      end
    end
  end
  settle()
  return reply
end

local function check(step)
  local _, seq = unpack('<c1I8', step)
  local records = { S.sole }
  if S.limit ~= 1 then
    records = S.holders > 0 and call('HVALS', K .. ':h') or {}
  end
  for _, record in ipairs(records) do
    if record ~= '' and sub(record, 1, 1) == 'H' then
      local number, _, till = unpack('<I8I8I8', record, 18)
      if number == seq and till > now then
        return 'H'
      end
    end
  end
  return 'Xf'
end

local steps = {
  c = claim, n = renew, t = raise, r = release, w = withdraw, e = evict, k = check,
}


return function(key, state, step)
  load(key, state)
  local reply = steps[sub(step, 1, 1)](step)
  save()
  return reply
end

end

