-- What an operator sees: for each key the server's time, the limit, the records of the holders and
-- those of the waiters in their order. Changes nothing.

local unpack, sub = struct.unpack, string.sub
local call = redis.call
local SIMPLE = '<c1I8I8c1I2c0I2c0'

local time = call('TIME')
local micros = time[1] * 1000000 + time[2] - 1577836800000000
local now = (micros - micros % 1000) / 1000

local views = {}
for i, key in ipairs(KEYS) do
  local state = call('GET', key)
  if state then
    local form, _, _, _, _, _, at = unpack(SIMPLE, state)
    local limit, holders, waiters = 1, at <= #state and 1 or 0, 0
    if form == 'g' then
      limit, _, _, holders, waiters, _, _, at = unpack('<I4I8I8I4I4I8I8', state, at)
    end
    local held, waiting = {}, {}
    if holders > 0 then
      held = limit == 1 and { sub(state, at) } or call('HVALS', key .. ':h')
    end
    if waiters > 0 then
      for _, request in ipairs(call('ZRANGE', key .. ':q', 0, -1)) do
        waiting[#waiting + 1] = call('HGET', key .. ':w', request)
      end
    end
    views[i] = { now, limit, held, waiting }
  else
    views[i] = { now, 0, {}, {} }
  end
end
return views
