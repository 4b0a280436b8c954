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

local unpack, pack, sub, find = struct.unpack, struct.pack, string.sub, string.find
local call = redis.call

local n = #KEYS
local WAKE, EVENTS, TELL, REMEMBER = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], tonumber(ARGV[n + 4])
local RUN = ARGV[n + 5]

-- version, limit, last number, last ticket, units taken, holders, waiters, the latest end of a
-- lease, how long the side keys live, predecessor (number, ending, owner), ended claims
local STATE = '<c1I4I8I8I8I4I4I8I8I8c1I2c0I2c0'
-- phase, request, number, since, until, lease, lock-delay, units, length of the details
local RECORD = '<c1c32I8I8I8I4I4I4I2'
-- request, number, ending
local ENDED, REMEMBERED = 41, 8

-- Milliseconds and microseconds since 2020. Redis stops this clock while a script runs.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2] - 1577836800000000
local now = (micros - micros % 1000) / 1000

local K, limit, last, ticket, taken, holders, waiters, keep, side, pseq, pending, powner, ended, sole
local dirty, opens, longest, other

-- In strict mode: when granting may begin, after data were lost or another server took over.
--
-- Data are those of this server's present time as master when they carry its marks: the id of its
-- run, another one after each restart, and that of its history, another one after each time as a
-- replica (and when a first replica comes), when its data were those of another server.
if RUN ~= '' then
  local key, mine = ARGV[n + 6], tonumber(ARGV[n + 7])
  local history = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  local marks = RUN .. (history or '')
  local known = call('GET', key)
  longest = mine
  local before
  if known and #known > 16 then
    opens, longest, before = unpack('<I8I8', known)
    before = sub(known, before)
  end
  -- No pause ends later than its length from now: if it seems to, the clock was set back.
  if before ~= marks or opens > now + longest then
    opens = now + longest
    call('SET', key, pack('<I8I8', opens, longest) .. marks)
  end
  if longest ~= mine then
    other = 'strict mode has longest=' .. longest .. 'ms here, and this client ' .. mine .. 'ms'
  end
  if opens <= now then
    opens = nil
  end
end

local watched
local function event(kind, record)
  if watched == nil then
    watched = call('PUBSUB', 'NUMSUB', EVENTS)[2] > 0
  end
  if watched then
    redis.pcall('PUBLISH', EVENTS, kind .. pack('<I8I2', micros, #K) .. K .. record)
  end
end

local function load(key)
  K, dirty = key, false
  local state = call('GET', K)
  if state then
    local version, at
    version, limit, last, ticket, taken, holders, waiters, keep, side, pseq, pending, powner, ended, at =
      unpack(STATE, state)
    if version ~= '1' then
      error('this lock was written by another version of clinch', 0)
    end
    sole = sub(state, at)
  else
    limit, last, ticket, taken, holders, waiters, keep, side = 0, 0, 0, 0, 0, 0, 0, 0
    pseq, pending, powner, ended, sole = 0, '-', '', '', ''
  end
end

local function save()
  if not dirty then
    return
  end
  local ttl = REMEMBER
  if holders == 0 and waiters == 0 then
    limit, taken, keep = 0, 0, 0
  elseif keep > now then
    ttl = ttl + keep - now
  end
  call('SET', K,
    pack(STATE, '1', limit, last, ticket, taken, holders, waiters, keep, side, pseq, pending,
      #powner, powner, #ended, ended) .. sole,
    'PX', ttl)
end

-- Side keys live as long as the state does; their ends are moved in large steps.
local function keep_until(till, fresh, one, other)
  if till > keep then
    keep = till
  end
  if keep + REMEMBER > side then
    side = keep + 2 * REMEMBER
    for _, key in ipairs({ ':q', ':w', ':h', ':x' }) do
      call('PEXPIRE', K .. key, side - now)
    end
  elseif fresh then
    call('PEXPIRE', K .. one, side - now)
    call('PEXPIRE', K .. other, side - now)
  end
end

local function remember(request, seq, ending)
  ended = sub(ended .. request .. pack('<I8', seq) .. ending, -ENDED * REMEMBERED)
end

-- What became of a claim that has ended: its ending and number, or nothing.
local function fate(request)
  local at = find(ended, request, 1, true)
  if at and at % ENDED == 1 then
    return sub(ended, at + 40, at + 40), unpack('<I8', ended, at + 32)
  end
end

-- A mutex has its holder in the state; shared names have theirs in a hash, ordered by a set.
local function holder(request)
  if limit == 1 then
    return holders > 0 and sub(sole, 2, 33) == request and sole
  end
  return holders > 0 and call('HGET', K .. ':h', request)
end

local function put_holder(request, record, till)
  dirty = true
  if limit == 1 then
    sole = record
    if till > keep then
      keep = till
    end
  else
    call('HSET', K .. ':h', request, record)
    call('ZADD', K .. ':x', till, request)
    keep_until(till, holders == 1, ':h', ':x')
  end
end

local function drop_holder(request, units)
  dirty = true
  holders, taken = holders - 1, taken - units
  if limit == 1 then
    sole = ''
  else
    call('HDEL', K .. ':h', request)
    call('ZREM', K .. ':x', request)
  end
end

local function put_waiter(request, record, till)
  dirty = true
  call('HSET', K .. ':w', request, record)
  keep_until(till, waiters == 1, ':q', ':w')
end

-- Ends a hold or a place in the queue; an unclean end of a hold may leave a delay.
local function finish(record, ending, when)
  local phase, request, seq, since, till, lease, delay, units, details, at = unpack(RECORD, record)
  dirty = true
  if phase == 'D' then
    return drop_holder(request, units)
  end
  remember(request, seq, ending)
  if phase == 'W' then
    event(ending == 'r' and 'w' or ending, record)
    call('ZREM', K .. ':q', request)
    call('HDEL', K .. ':w', request)
    waiters = waiters - 1
    return
  end
  event(ending, record)
  pseq, pending, powner = seq, ending, unpack('<I2c0', record, at)
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
  while holders > 0 do
    local record = sole
    if limit ~= 1 then
      local first = call('ZRANGE', K .. ':x', 0, 0)[1]
      record = first and call('HGET', K .. ':h', first)
      if not record then
        -- Side keys were lost, for example evicted from memory.
        call('DEL', K .. ':h', K .. ':x')
        holders, taken, dirty = 0, 0, true
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
  if holders > 0 then
    if limit == 1 then
      left = unpack('<I8', sole, 50) - now
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
  if pseq > 0 and pseq < seq then
    return 'G' .. pack('<I8I8c1', seq, pseq, pending) .. powner
  end
  return 'G' .. pack('<I8I8c1', seq, 0, '-')
end

local function grant(request, lease, delay, units, details, rest, after)
  last = last + 1
  if micros > last then
    last = micros
  end
  if after > last then
    last = after
  end
  holders, taken = holders + 1, taken + units
  local record = pack(RECORD, 'H', request, last, now, now + lease + 1, lease, delay, units, details)
    .. rest
  put_holder(request, record, now + lease + 1)
  event('g', record)
  return last
end

-- Grants from the head of the queue as long as there is room; `me` gets its grant as the reply.
local function settle(me)
  local mine
  while waiters > 0 and not opens do
    local first = call('ZRANGE', K .. ':q', 0, 0)[1]
    local record = first and call('HGET', K .. ':w', first)
    if not record then
      call('DEL', K .. ':q', K .. ':w')
      waiters, dirty = 0, true
      return mine
    end
    local _, request, _, _, till, lease, delay, units, details, at = unpack(RECORD, record)
    if till <= now then
      finish(record, 'x', till)
    elseif taken + units > limit then
      return mine
    else
      call('ZREM', K .. ':q', first)
      call('HDEL', K .. ':w', first)
      waiters = waiters - 1
      local seq = grant(request, lease, delay, units, details, sub(record, at), 0)
      local client = sub(request, 1, 16)
      if request == me then
        mine = granted(seq)
      elseif TELL == 'g' then
        redis.pcall('PUBLISH', WAKE .. client, request .. granted(seq))
      elseif TELL == 'h' then
        redis.pcall('PUBLISH', WAKE .. client, request)
      else
        redis.pcall('SPUBLISH', K .. ':' .. client, request)
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
    unpack('<c1c32I4I4I4I4BI8I2', step)
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
      pack(RECORD, 'H', request, seq, since, till, before, unpack('<I4I4I2', held, 62))
        .. sub(held, rest), till)
    settle()
    return granted(seq)
  end
  local waiting = waiters > 0 and call('HGET', K .. ':w', request)
  if waiting then
    local _, _, _, since, till, before, _, _, _, rest = unpack(RECORD, waiting)
    if lease > before then
      before = lease
    end
    if now + lease + 1 > till then
      till = now + lease + 1
    end
    put_waiter(request,
      pack(RECORD, 'W', request, 0, since, till, before, unpack('<I4I4I2', waiting, 62))
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
  if holders == 0 and waiters == 0 then
    limit = wanted
  elseif limit ~= wanted then
    return 'M' .. pack('<I4', limit)
  end
  if waiters == 0 and taken + units <= limit and not opens then
    return granted(grant(request, lease, delay, units, details, sub(step, at), after))
  end
  if queue == 0 then
    return 'B' .. pack('<I8', retry_after())
  end
  ticket, waiters = ticket + 1, waiters + 1
  local till = now + lease + 1
  local record = pack(RECORD, 'W', request, 0, now, till, lease, delay, units, details)
    .. sub(step, at)
  call('ZADD', K .. ':q', ticket, request)
  put_waiter(request, record, till)
  event('q', record)
  return 'Q' .. pack('<I4I8', waiters - 1, retry_after())
end

-- The live hold with this request and number.
local function matching(request, seq)
  local held = holder(request)
  if held and sub(held, 1, 1) == 'H' and unpack('<I8', held, 34) == seq then
    return held
  end
end

local function renew(step)
  local _, request, seq, lease, published, value = unpack('<c1c32I8I4B', step)
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
  local _, request, seq, lease = unpack('<c1c32I8I4', step)
  expire()
  local held = holder(request)
  if not held or sub(held, 1, 1) ~= 'H' then
    return 'X' .. lost(request)
  end
  local _, _, before, since, _, _, delay, units, details, at = unpack(RECORD, held)
  if before > seq then
    return 'Xf'
  end
  if seq > last then
    last = seq
  end
  local till = now + lease + 1
  put_holder(request,
    pack(RECORD, 'H', request, seq, since, till, lease, delay, units, details) .. sub(held, at),
    till)
  return 'H'
end

local function release(step)
  local _, request, seq = unpack('<c1c32I8', step)
  expire()
  local held = matching(request, seq)
  local reply = 'H'
  if held then
    finish(held, 'r', now)
  else
    local ending, number = fate(request)
    if ending ~= 'r' or number ~= seq then
      reply = 'X' .. (ending or 'f')
    end
  end
  settle()
  return reply
end

local function withdraw(step)
  local _, request = unpack('<c1c32', step)
  expire()
  local record = holder(request)
  if record and sub(record, 1, 1) == 'D' then
    record = nil
  end
  record = record or waiters > 0 and call('HGET', K .. ':w', request)
  if record then
    finish(record, 'r', now)
  elseif not fate(request) then
    -- It has not arrived yet: it is to find itself refused when it does.
    remember(request, 0, 'r')
    dirty = true
  end
  settle()
  return 'H'
end

local function evict(step)
  local _, seq = unpack('<c1I8', step)
  expire()
  local meant, reply = { sole }, 'E'
  if limit ~= 1 then
    meant = holders > 0 and call('HVALS', K .. ':h') or {}
  end
  for _, record in ipairs(meant) do
    if record ~= '' and sub(record, 1, 1) == 'H' then
      local number = unpack('<I8', record, 34)
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
  local records = { sole }
  if limit ~= 1 then
    records = holders > 0 and call('HVALS', K .. ':h') or {}
  end
  for _, record in ipairs(records) do
    if record ~= '' and sub(record, 1, 1) == 'H' then
      local number, _, till = unpack('<I8I8I8', record, 34)
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

local replies = {}
for i = 1, n do
  local step = ARGV[i]
  local done, reply = pcall(function()
    load(KEYS[i])
    local reply = steps[sub(step, 1, 1)](step)
    save()
    return reply
  end)
  -- One step that fails takes no other with it.
  if not done then
    reply = '!' .. (type(reply) == 'table' and reply.err or tostring(reply))
  end
  replies[i] = reply
end
return replies
