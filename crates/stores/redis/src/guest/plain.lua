-- String locks, as redis-py, redsync and node-redlock keep them: SET NX PX, with the owner's text as
-- the value. One operation on any number of locks; the replies come in their order.
--
-- KEYS: for each lock its key and the list of ended claims. ARGV: the operation, how long to remember an end
-- (ms), until when a claim may be applied or an end must be kept, and for each lock the owner's text and the
-- lease in ms.

-- False for a key of another type.
local function is_held(key, owner)
  return pcall('GET', key) == owner
end

local steps = {}

function steps.claim(key, list, owner, lease)
  local how = ended(list, owner)
  if how then
    keep(list, how, owner)
    return { 'gone', how }
  end
  if now > moment and not is_held(key, owner) then return { 'late', now } end
  if call('SET', key, owner, 'NX', 'PX', lease) then return { 'granted' } end
  if call('TYPE', key).ok ~= 'string' then return clash(key) end
  if call('GET', key) == owner then
    -- A repeated claim, whose first reply was lost: a renewal.
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
  if how then keep(list, how, owner) else note(list, 'f', owner) end
  if how == 'r' then return { 'held' } end
  return { 'lost', how or 'f' }
end

function steps.withdraw(key, list, owner)
  if is_held(key, owner) then call('DEL', key) end
  local how = ended(list, owner)
  if how then keep(list, how, owner) else note(list, 'w', owner) end
  return { 'held' }
end

-- Without an owner's text: any holder.
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
  replies[#replies + 1] = steps[operation](KEYS[i], KEYS[i + 1], ARGV[i + 3], ARGV[i + 4])
end
return replies
