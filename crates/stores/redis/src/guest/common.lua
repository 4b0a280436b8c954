-- Shared by the layouts of other libraries: precedes each of their scripts.

local call, pcall = redis.call, redis.pcall
local operation, remember, moment = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Milliseconds since 2020 by this server's clock.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) - 1577836800000

-- The ends that a lock remembers in any case. Each is a letter, until when it must be kept (14 digits), and
-- the owner.
local MOST = 32

-- How this owner's claim ended, if that is remembered.
local function ended(list, owner)
  for _, entry in ipairs(call('LRANGE', list, 0, -1)) do
    if string.sub(entry, 16) == owner then return string.sub(entry, 1, 1) end
  end
end

-- Remembers an end, so that a late copy of the claim is refused, and a repeated release has the same
-- reply. It comes after the key was deleted: a server that is out of memory lets a script go on once it has
-- written, so a lock can always be released.
--
-- A copy of the claim without a reply may be applied until `moment`: until then its end is kept, however many
-- others end. An eviction has only the time until which a copy of the evictor's own claims could be applied:
-- that, or a minute, which is enough for holders with a timeout below 30 s (src/ledger.rs).
local function note(list, how, owner)
  local moment = how == 'e' and math.max(moment, now + 60000) or moment
  call('LPUSH', list, how .. string.format('%014d', moment) .. owner)
  for _, entry in ipairs(call('LRANGE', list, MOST, -1)) do
    if tonumber(string.sub(entry, 2, 15)) <= now then call('LREM', list, -1, entry) end
  end
  local longest = math.max(remember, moment - now)
  if call('PTTL', list) < longest then call('PEXPIRE', list, longest) end
end

-- Keeps an end that is remembered already.
local function keep(list, how, owner)
  if moment > now then note(list, how, owner) end
end

-- The reply for a key that is not a lock of this layout.
local function clash(key)
  local kind = call('TYPE', key).ok
  local reply = { 'clash', kind }
  if kind == 'hash' and call('HLEN', key) <= 16 then
    for _, field in ipairs(call('HKEYS', key)) do reply[#reply + 1] = field end
  end
  return reply
end

