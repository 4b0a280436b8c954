local unpack, pack, sub, find = struct.unpack, struct.pack, string.sub, string.find
local call = redis.call

local n = #KEYS
local WAKE, EVENTS, TELL, REMEMBER, RUN = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4], ARGV[n + 5]
local SIMPLE = '<c1I8I8c1I2c0I2c0'
local CROWD = '<I4I8I4I4I4I8I8I8'
local RECORD = '<c1c16I8I8I8I4I4I4I2'

-- Milliseconds and microseconds since 2020. Redis stops this clock while a script runs.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2] - 1577836800000000
local now = (micros - micros % 1000) / 1000
if micros < 0 then
  return redis.error_reply('CLOCK the clock of the server is before 2020')
end

-- In strict mode: when granting may begin, after data were lost or another server took over.
--
-- Data are those of this server's present time as master when they carry its marks: the id of its
-- run, another one after each restart, and that of its history, another one after each time as a
-- replica (and when a first replica comes), when its data were those of another server.
local opens, refused
if RUN ~= '' then
  local key, mine = ARGV[n + 6], tonumber(ARGV[n + 7])
  local history = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  local marks = RUN .. (history or '')
  local known = call('GET', key)
  local longest, before = mine, nil
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
    -- Its pause would be too short for leases of others, or theirs for its own.
    refused = 'strict mode has longest=' .. longest .. 'ms here, and this client ' .. mine .. 'ms'
  end
  if opens <= now then
    opens = nil
  end
end

-- Nobody watches and nothing is closed: a mutex can take the short cuts.
local short = not opens and not refused and call('PUBSUB', 'NUMSUB', EVENTS)[2] == 0

-- The short cuts of a mutex: a claim of a free one; its release or renewal by a holder whom nobody
-- waits for; a claim that has to wait, and a release to the next in the queue. They do what the general
-- case would do. Whatever else there may be (somebody has run out, the clock was set back, a request
-- that is known already) is left to it: then nothing is returned.
local function cut(key, state, step)
  local op = sub(step, 1, 1)
  local form, last, pseq, pending, powner, ended, at = 'm', 0, 0, '-', '', '', 1
  if state then
    form, last, pseq, pending, powner, ended, at = unpack(SIMPLE, state)
  end
  local free = not state or form == 'm' and at > #state

  if op == 'c' then
    local _, request, lease, delay, units, limit, queue, after, details, rest =
      unpack('<c1c16I4I4I4I4BI8I2', step)
    if limit ~= 1 or units ~= 1 or state and find(state, request, 1, true) then
      return
    end
    if after > last then
      last = after
    end
    if free then
      last = last + 1
      if micros > last then
        last = micros
      end
      call('SET', key,
        pack(SIMPLE, 'm', last, pseq, pending, #powner, powner, #ended, ended)
          .. pack(RECORD, queue == 2 and 'P' or 'H', request, last, now, now + lease + 1, lease, delay, 1,
            details) .. sub(step, rest),
        'PX', lease + 1 + REMEMBER)
      return 'G' .. pack('<I8I8c1', last, pseq, pending) .. powner
    end
    local waiting, first, keep, holder, waiters = 0, 0, 0, '', ''
    if form == 'm' then
      local term
      first, term = unpack('<I8I4', state, at + 33)
      -- A delay, or the clock was set back.
      if sub(state, at, at) == 'D' or first > now + term + 1 then
        return
      end
      keep, holder = first, sub(state, at)
    elseif form == 'g' then
      local used, held, bytes, seen
      used, _, held, waiting, bytes, first, keep, seen, at = unpack(CROWD, state, at)
      if used ~= 1 or held ~= 1 or now < seen then
        return
      end
      holder, waiters = sub(state, at + 4, at + bytes - 1), sub(state, at + bytes)
    else
      return
    end
    if first <= now then
      return
    end
    if queue ~= 1 then
      return 'B' .. pack('<I8', first - now)
    end
    local till = now + lease + 1
    if till > keep then
      keep = till
    end
    local record = pack(RECORD, 'W', request, 0, now, till, lease, delay, 1, details) .. sub(step, rest)
    call('SET', key,
      pack(SIMPLE, 'g', last, pseq, pending, #powner, powner, #ended, ended)
        .. pack(CROWD, 1, 1, 1, waiting + 1, #holder + 4, first, keep, now)
        .. pack('<I4', #holder) .. holder .. waiters .. pack('<I4', #record) .. record,
      'PX', keep - now + REMEMBER)
    return 'Q' .. pack('<I4I8', waiting, first - now)
  end

  if op ~= 'r' and op ~= 'n' or free then
    return
  end
  local waiting, bytes, keep, seen = 0, 0, 0, 0
  local start = at
  if form == 'g' then
    local used, held, _
    used, _, held, waiting, bytes, _, keep, seen, at = unpack(CROWD, state, at)
    if used ~= 1 or held ~= 1 or now < seen or op == 'n' or TELL ~= 'g' then
      return
    end
    start = at + 4
  elseif form ~= 'm' then
    return
  end
  local phase, request, seq, since, till, lease, delay, units, details, rest = unpack(RECORD, state, start)
  if phase ~= 'H' or till <= now or till > now + lease + 1 or sub(step, 2, 17) ~= request
    or unpack('<I8', step, 18) ~= seq then
    return
  end

  if op == 'n' then
    local published
    lease, published = unpack('<I4B', step, 26)
    if published == 1 then
      return
    end
    call('SET', key,
      sub(state, 1, start - 1)
        .. pack(RECORD, 'H', request, seq, since, now + lease + 1, lease, delay, 1, details)
        .. sub(state, rest),
      'PX', lease + 1 + REMEMBER)
    return 'H'
  end

  ended = sub(ended .. request .. pack('<I4', seq % 4294967296) .. 'r', -168)
  powner = unpack('<I2c0', state, rest)
  if waiting == 0 then
    call('SET', key, pack(SIMPLE, 'm', last, seq, 'r', #powner, powner, #ended, ended), 'PX', REMEMBER)
    return 'H'
  end
  -- To the next in the queue.
  local next = at + bytes
  local length = unpack('<I4', state, next)
  local _, who, _, _, until_, term, pause, _, more, tail = unpack(RECORD, state, next + 4)
  if until_ <= now then
    return
  end
  last = last + 1
  if micros > last then
    last = micros
  end
  local record = pack(RECORD, 'H', who, last, now, now + term + 1, term, pause, 1, more)
    .. sub(state, tail, next + 3 + length)
  local simple = pack(SIMPLE, 'm', last, seq, 'r', #powner, powner, #ended, ended)
  if waiting == 1 then
    call('SET', key, simple .. record, 'PX', term + 1 + REMEMBER)
  else
    if now + term + 1 > keep then
      keep = now + term + 1
    end
    call('SET', key,
      'g' .. sub(simple, 2) .. pack(CROWD, 1, 1, 1, waiting - 1, #record + 4, now + term + 1, keep, now)
        .. pack('<I4', #record) .. record .. sub(state, next + 4 + length),
      'PX', keep - now + REMEMBER)
  end
  redis.pcall('PUBLISH', WAKE .. string.format('%08x%08x', unpack('>I4I4', who)),
    who .. 'G' .. pack('<I8I8c1', last, seq, 'r') .. powner)
  return 'H'
end

local all
local function whole(key, state, step)
  if refused and sub(step, 1, 1) == 'c' then
    error(refused, 0)
  end
  all = all or general(now, micros, opens, WAKE, EVENTS, TELL, tonumber(REMEMBER))
  return all(key, state, step)
end

local function told(reply)
  return type(reply) == 'table' and reply.err or tostring(reply)
end

local replies = {}
for i = 1, n do
  local key, step = KEYS[i], ARGV[i]
  -- One step that fails takes no other with it; but a replica can take none.
  local done, reply = pcall(call, 'GET', key)
  if done then
    local state = reply
    if short then
      done, reply = pcall(cut, key, state, step)
    end
    if done and (not short or not reply) then
      done, reply = pcall(whole, key, state, step)
    end
    if not done and sub(step, 1, 1) ~= 'c' and find(told(reply), 'OOM', 1, true) then
      -- Memory is short, so the first write was refused. What is held can still be renewed and given
      -- up: after a write that cannot need memory, this script may write.
      call('DEL', key .. ':')
      done, reply = pcall(whole, key, state, step)
    end
  end
  if not done then
    local why = told(reply)
    if sub(why, 1, 8) == 'READONLY' then
      return redis.error_reply(why)
    end
    reply = '!' .. why
  end
  replies[i] = reply
end
return replies
