-- Redisson's RLock: a hash with one field, the owner, and its reentrant count. One operation on any number of
-- locks; the replies come in their order.
--
-- KEYS: for each lock its key, the list of ended claims and the queue of a fair lock of that name. ARGV: the
-- operation, how long to remember an end (ms), until when a claim may be applied or an end must be kept, and for
-- each lock the owner's field, the lease in ms and the channel of releases.

-- A hash with a mode is a read-write lock.
local function is_lock(key)
  return call('TYPE', key).ok == 'hash' and call('HEXISTS', key, 'mode') == 0
end

-- False for a key of another type.
local function is_held(key, owner)
  return pcall('HEXISTS', key, owner) == 1
end

-- Frees the lock and publishes it. A user who may not publish still frees it, but then waiters sleep until
-- the end of the lease.
local function free(key, channel)
  call('DEL', key)
  local published = pcall('PUBLISH', channel, '0')
  return type(published) == 'number'
end

local steps = {}

function steps.claim(key, list, queue, owner, lease)
  local how = ended(list, owner)
  if how then
    keep(list, how, owner)
    return { 'gone', how }
  end
  if now > moment and not is_held(key, owner) then return { 'late', now } end
  if call('EXISTS', queue) == 1 then return { 'clash', 'fair' } end
  if call('EXISTS', key) == 0 then
    call('HSET', key, owner, 1)
    call('PEXPIRE', key, lease)
    return { 'granted' }
  end
  if not is_lock(key) then return clash(key) end
  if call('HEXISTS', key, owner) == 1 then
    -- A repeated claim, whose first reply was lost: a renewal, and not one more entry.
    call('PEXPIRE', key, lease)
    return { 'granted' }
  end
  return { 'taken', call('PTTL', key) }
end

function steps.renew(key, list, _, owner, lease)
  if is_held(key, owner) then
    call('PEXPIRE', key, lease)
    return { 'held' }
  end
  return { 'lost', ended(list, owner) or 'f' }
end

function steps.release(key, list, _, owner, _, channel)
  if is_held(key, owner) then
    local published = free(key, channel)
    note(list, 'r', owner)
    return { published and 'held' or 'unpublished' }
  end
  local how = ended(list, owner)
  if how then keep(list, how, owner) else note(list, 'f', owner) end
  if how == 'r' then return { 'held' } end
  return { 'lost', how or 'f' }
end

function steps.withdraw(key, list, _, owner, _, channel)
  if is_held(key, owner) then free(key, channel) end
  local how = ended(list, owner)
  if how then keep(list, how, owner) else note(list, 'w', owner) end
  return { 'held' }
end

-- Without an owner's field: any holder.
function steps.evict(key, list, _, owner, _, channel)
  if call('EXISTS', key) == 0 then return { 'none' } end
  if not is_lock(key) then return clash(key) end
  local held = owner
  if owner == '' then held = call('HKEYS', key)[1] end
  if not is_held(key, held) then return { 'none' } end
  free(key, channel)
  note(list, 'e', held)
  return { 'evicted', held }
end

function steps.view(key)
  if call('EXISTS', key) == 0 then return { 'none' } end
  if not is_lock(key) then return clash(key) end
  local reply = { 'holder', call('PTTL', key) }
  for _, part in ipairs(call('HGETALL', key)) do reply[#reply + 1] = part end
  return reply
end

local replies = {}
local at = 4
for i = 1, #KEYS, 3 do
  replies[#replies + 1] =
    steps[operation](KEYS[i], KEYS[i + 1], KEYS[i + 2], ARGV[at], ARGV[at + 1], ARGV[at + 2])
  at = at + 3
end
return replies
