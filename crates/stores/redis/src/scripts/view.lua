-- Views of locks for operators: for each key the server's time, the limit, the records of the holders and
-- those of the waiters in their order. Read only. Placeholders as in slow_path/state.lua.

local unpack, sub = struct.unpack, string.sub
local call = redis.call

local time = call('TIME')
local micros = time[1] * 1000000 + time[2] - @EPOCH_MICROS@
local now = (micros - micros % 1000) / 1000

local function split(records)
  local list, at = {}, 1
  while at <= #records do
    local length = unpack('@LENGTH@', records, at)
    list[#list + 1] = sub(records, at + @#LENGTH@, at + @#LENGTH@ - 1 + length)
    at = at + @#LENGTH@ + length
  end
  return list
end

local views = {}
for i, key in ipairs(KEYS) do
  local state = call('GET', key)
  local limit, held, waiting = 1, {}, {}
  if state then
    local form, _, _, _, memory, _, at = unpack('@HEAD@', state)
    at = at + memory
    if form == 'G' then
      local bytes
      limit, _, _, _, bytes, _, _, _, at = unpack('@GROUP@', state, at)
      held, waiting = split(sub(state, at, at + bytes - 1)), split(sub(state, at + bytes))
    elseif at <= #state then
      held = { sub(state, at) }
    end
  end
  views[i] = { now, limit, held, waiting }
end
return views
