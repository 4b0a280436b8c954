-- What an operator sees: for each key the server's time, the limit, the records of the holders and
-- those of the waiters in their order. Changes nothing.

local unpack, sub = struct.unpack, string.sub
local call = redis.call

local time = call('TIME')
local micros = time[1] * 1000000 + time[2] - 1577836800000000
local now = (micros - micros % 1000) / 1000

local function split(records)
  local list, at = {}, 1
  while at <= #records do
    local length = unpack('<I4', records, at)
    list[#list + 1] = sub(records, at + 4, at + 3 + length)
    at = at + 4 + length
  end
  return list
end

local views = {}
for i, key in ipairs(KEYS) do
  local state = call('GET', key)
  local limit, held, waiting = 1, {}, {}
  if state then
    local form, _, _, _, memory, _, at = unpack('<c1I8I8I8I4I2', state)
    at = at + memory
    if form == 'G' then
      local bytes
      limit, _, _, _, bytes, _, _, _, at = unpack('<I4I8I4I4I4I8I8I8', state, at)
      held, waiting = split(sub(state, at, at + bytes - 1)), split(sub(state, at + bytes))
    elseif at <= #state then
      held = { sub(state, at) }
    end
  end
  views[i] = { now, limit, held, waiting }
end
return views
