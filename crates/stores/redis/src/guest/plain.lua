-- String locks, as redis-py, redsync and node-redlock keep them: SET NX PX, with the owner's text as
-- the value. One operation on any number of locks; the replies come in their order.
--
-- KEYS: for each lock its key and the list of those that ended. ARGV: the operation, for how long (ms)
-- to remember an end, and for each lock the owner's text and the lease in ms.

local call, pcall = redis.call, redis.pcall
local operation, remember = ARGV[1], ARGV[2]

-- Ends that are remembered of one lock.
local MOST = 32

-- How this owner's claim ended, if it is known to have.
local function ended(list, owner)
  for _, entry in ipairs(call('LRANGE', list, 0, -1)) do
    if string.sub(entry, 2) == owner then return string.sub(entry, 1, 1) end
  end
end

-- Remembers an end, so that a copy of the claim that is still under way is refused, and a repeated
-- release has the same answer. It comes after the key was deleted: a server that is out of memory lets
-- a script go on once it has written, and so a lock can always be given up.
local function note(list, how, owner)
  call('LPUSH', list, how .. owner)
  call('LTRIM', list, 0, MOST - 1)
  call('PEXPIRE', list, remember)
end

-- What is there instead of a string.
local function clash(key)
  local kind = call('TYPE', key).ok
  local reply = { 'clash', kind }
  if kind == 'hash' and call('HLEN', key) <= 16 then
    for _, field in ipairs(call('HKEYS', key)) do reply[#reply + 1] = field end
  end
  return reply
end

-- A key of another kind is nobody's value here.
local function is_held(key, owner)
  return pcall('GET', key) == owner
end

local steps = {}

function steps.claim(key, list, owner, lease)
  local how = ended(list, owner)
  if how then return { 'gone', how } end
  if call('SET', key, owner, 'NX', 'PX', lease) then return { 'granted' } end
  if call('TYPE', key).ok ~= 'string' then return clash(key) end
  if call('GET', key) == owner then
    -- The reply to the first one was lost; it counts as a renewal.
    call('PEXPIRE', key, lease)
    return { 'granted' }
  end
  return { 'taken', call('PTTL', key) }
end

function steps.renew(key, list, owner, lease)
  if is_held(key, owner) then
    call('PEXPIRE', key, lease)
    return { 'held' }
  end
  return { 'lost', ended(list, owner) or 'f' }
end

function steps.release(key, list, owner)
  if is_held(key, owner) then
    call('DEL', key)
    note(list, 'r', owner)
    return { 'held' }
  end
  local how = ended(list, owner)
  if how == 'r' then return { 'held' } end
  if not how then note(list, 'f', owner) end
  return { 'lost', how or 'f' }
end

function steps.withdraw(key, list, owner)
  if is_held(key, owner) then call('DEL', key) end
  if not ended(list, owner) then note(list, 'w', owner) end
  return { 'held' }
end

-- Without an owner's text, whoever holds it.
function steps.evict(key, list, owner)
  local kind = call('TYPE', key).ok
  if kind == 'none' then return { 'none' } end
  if kind ~= 'string' then return clash(key) end
  local held = call('GET', key)
  if owner ~= '' and held ~= owner then return { 'none' } end
  call('DEL', key)
  note(list, 'e', held)
  return { 'evicted', held }
end

function steps.view(key)
  local kind = call('TYPE', key).ok
  if kind == 'none' then return { 'none' } end
  if kind ~= 'string' then return clash(key) end
  return { 'holder', call('PTTL', key), call('GET', key), '1' }
end

local replies = {}
for i = 1, #KEYS, 2 do
  replies[#replies + 1] = steps[operation](KEYS[i], KEYS[i + 1], ARGV[i + 2], ARGV[i + 3])
end
return replies
