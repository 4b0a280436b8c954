local unpack, pack, sub = struct.unpack, struct.pack, string.sub
local call = redis.call

local n = #KEYS
local EVENTS, REMEMBER, RUN = ARGV[n + 2], ARGV[n + 4], ARGV[n + 5]
local SIMPLE = '<c1I8I8c1I2c0I2c0'
local RECORD = '<c1c16I8I8I8I4I4I4I2'

-- Milliseconds and microseconds since 2020. Redis stops this clock while a script runs.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2] - 1577836800000000
local now = (micros - micros % 1000) / 1000

-- In strict mode: when granting may begin, after data were lost or another server took over.
--
-- Data are those of this server's present time as master when they carry its marks: the id of its
-- run, another one after each restart, and that of its history, another one after each time as a
-- replica (and when a first replica comes), when its data were those of another server.
local opens, other
if RUN ~= '' then
  local key, mine = ARGV[n + 6], tonumber(ARGV[n + 7])
  local history = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  local marks = RUN .. (history or '')
  local known = call('GET', key)
  local longest, before = mine
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

-- Nobody watches and nothing is closed: a mutex without rivals can take the short cut.
local short = not opens and not other and call('PUBSUB', 'NUMSUB', EVENTS)[2] == 0

-- The claim of a free mutex, or the release or renewal of a mutex that nobody waits for; does what the
-- general case would do, or nothing.
local function cut(key, state, step)
  local form, last, pseq, pending, powner, ended, at = 'm', 0, 0, '-', '', '', 1
  if state then
    form, last, pseq, pending, powner, ended, at = unpack(SIMPLE, state)
    if form ~= 'm' then
      return
    end
  end
  local op = sub(step, 1, 1)
  if op == 'c' then
    local _, request, lease, delay, units, limit, queue, after, details, rest =
      unpack('<c1c16I4I4I4I4BI8I2', step)
    if state and at <= #state or limit ~= 1 or units ~= 1 or string.find(ended, request, 1, true) then
      return
    end
    last = last + 1
    if micros > last then
      last = micros
    end
    if after > last then
      last = after
    end
    call('SET', key,
      pack(SIMPLE, 'm', last, pseq, pending, #powner, powner, #ended, ended)
        .. pack(RECORD, 'H', request, last, now, now + lease + 1, lease, delay, 1, details)
        .. sub(step, rest),
      'PX', lease + 1 + REMEMBER)
    return 'G' .. pack('<I8I8c1', last, pseq, pending) .. powner
  end
  if op ~= 'r' and op ~= 'n' or not state or at > #state then
    return
  end
  local phase, request, seq, since, till, lease, delay, units, details, rest = unpack(RECORD, state, at)
  if phase ~= 'H' or till <= now or till > now + lease + 1 or sub(step, 2, 17) ~= request
    or unpack('<I8', step, 18) ~= seq then
    return
  end
  if op == 'r' then
    ended = sub(ended .. request .. pack('<I4', seq % 4294967296) .. 'r', -168)
    powner = unpack('<I2c0', state, rest)
    call('SET', key, pack(SIMPLE, 'm', last, seq, 'r', #powner, powner, #ended, ended), 'PX', REMEMBER)
    return 'H'
  end
  local published
  lease, published = unpack('<I4B', step, 26)
  if published == 1 then
    return
  end
  call('SET', key,
    sub(state, 1, at - 1)
      .. pack(RECORD, 'H', request, seq, since, now + lease + 1, lease, delay, 1, details)
      .. sub(state, rest),
    'PX', lease + 1 + REMEMBER)
  return 'H'
end

local all
local replies = {}
for i = 1, n do
  local key, step = KEYS[i], ARGV[i]
  -- One step that fails takes no other with it.
  local state = redis.pcall('GET', key)
  local failed = type(state) == 'table' and state.err
  local reply = not failed and short and cut(key, state, step)
  if not reply and not failed then
    all = all or general(now, micros, opens, other, ARGV[n + 1], EVENTS, ARGV[n + 3], tonumber(REMEMBER))
    local done
    done, reply = pcall(all, key, state, step)
    failed = not done and (type(reply) == 'table' and reply.err or tostring(reply))
  end
  replies[i] = failed and '!' .. failed or reply
end
return replies
