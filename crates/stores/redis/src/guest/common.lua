-- What the layouts of other libraries share: it comes before each of their scripts.

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

-- What is there instead of a lock of this kind.
local function clash(key)
  local kind = call('TYPE', key).ok
  local reply = { 'clash', kind }
  if kind == 'hash' and call('HLEN', key) <= 16 then
    for _, field in ipairs(call('HKEYS', key)) do reply[#reply + 1] = field end
  end
  return reply
end

