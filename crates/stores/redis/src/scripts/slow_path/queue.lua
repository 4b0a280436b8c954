-- Part of the slow path: records of holders and waiters, expiry, grants.

-- The position and the record of a request among these records.
local function seek(records, request)
  local at = find(records, request, 1, true)
  if at then
    local start = at - @#LENGTH@ - @RECORD.request@
    local record = start + @#LENGTH@
    return start, sub(records, record, record - 1 + unpack('@LENGTH@', records, start))
  end
end

-- Maps each of these records; one that maps to nothing is removed.
local function each(records, change)
  local kept, at = {}, 1
  while at <= #records do
    local length = unpack('@LENGTH@', records, at)
    local record = change(sub(records, at + @#LENGTH@, at + @#LENGTH@ - 1 + length))
    if record then
      kept[#kept + 1] = pack('@LENGTH@', #record)
      kept[#kept + 1] = record
    end
    at = at + @#LENGTH@ + length
  end
  return table.concat(kept)
end

-- Updates the first end of a lease among the holders.
local function update_first()
  S.first = 0
  each(S.holders, function(record)
    local till = unpack('<I8', record, 1 + @RECORD.until@)
    if S.first == 0 or till < S.first then
      S.first = till
    end
  end)
end

-- Replaces a record, or removes it.
local function put(which, at, before, record)
  local records = S[which]
  S.dirty = true
  S[which] = sub(records, 1, at - 1) .. (record and pack('@LENGTH@', #record) .. record or '')
    .. sub(records, at + @#LENGTH@ + #before)
  if record then
    local till, _, delay = unpack('@RECORD.until-delay@', record, 1 + @RECORD.until@)
    if sub(record, 1, 1) == 'H' then
      till = till + delay
    end
    if till > S.keep then
      S.keep = till
    end
  end
  if which == 'holders' then
    update_first()
  end
end

-- Ends a holder or waiter. Returns the record that remains: a delay, or nothing.
local function ended(record, ending, when, keep)
  local phase, request, seq, since, till, lease, delay, units, details, at = unpack('@RECORD@', record)
  -- Ended without its client: all copies of its claim were sent before now.
  keep = keep or now + math.min(math.max(lease, SHORTEST), OLD) + AHEAD
  S.dirty = true
  if phase == 'W' then
    event(ending == 'r' and 'w' or ending, record)
    remember(request, seq, ending, keep)
    S.waiting = S.waiting - 1
    return
  end
  if phase == 'H' then
    event(ending, record)
    remember(request, seq, ending, keep)
    S.pseq, S.pending, S.powner = seq, ending, unpack('<I2c0', record, at)
    if ending ~= 'r' and delay > 0 and when + delay > now then
      if when + delay > S.keep then
        S.keep = when + delay
      end
      return pack('@RECORD@', 'D', request, seq, when, when + delay, lease, delay, units, details)
        .. sub(record, at)
    end
  elseif phase == 'P' and ending ~= 'x' then
    -- A prepared claim was not held: no event.
    remember(request, seq, ending, keep)
  end
  S.held, S.taken = S.held - 1, S.taken - units
end

local function finish(which, at, record, ending, keep)
  put(which, at, record, ended(record, ending, now, keep))
end

-- The server's clock was set back since this was written. No lease ends later than its length from
-- now: else the lock of a dead holder would stay taken for as long as the clock was set back.
local function shorten()
  local function shortened(record)
    local phase, request, seq, since, till, lease, delay, units, details, at = unpack('@RECORD@', record)
    local longest = now + (phase == 'D' and delay or lease) + 1
    if till <= longest then
      return record
    end
    return pack('@RECORD@', phase, request, seq, now, longest, lease, delay, units, details)
      .. sub(record, at)
  end
  S.dirty = true
  S.holders, S.waiters = each(S.holders, shortened), each(S.waiters, shortened)
  update_first()
end

-- Ends expired holds and delays.
local function expire()
  if S.set_back then
    shorten()
  end
  if S.held > 0 and S.first <= now then
    S.holders = each(S.holders, function(record)
      local till = unpack('<I8', record, 1 + @RECORD.until@)
      if till > now then
        return record
      end
      return ended(record, 'x', till)
    end)
    update_first()
  end
end

local function retry_after()
  local left = S.held > 0 and S.first - now or 0
  if opens and (left == 0 or opens - now < left) then
    left = opens - now
  end
  return left
end

-- The reply with a grant.
local function granted(seq)
  if S.pseq > 0 and S.pseq < seq then
    return 'G' .. pack('<I8I8c1', seq, S.pseq, S.pending) .. S.powner
  end
  return 'G' .. pack('<I8I8c1', seq, 0, '-')
end

local function grant(phase, request, lease, delay, units, details, rest)
  S.last = S.last + 1
  if micros > S.last then
    S.last = micros
  else
    -- Ahead of this clock: after the numbers of all names, so that no other name has the same.
    local known = highest()
    S.last = known and known >= S.last and known + 1 or S.last
  end
  local till = now + lease + 1
  local record = pack('@RECORD@', phase, request, S.last, now, till, lease, delay, units, details) .. rest
  S.dirty = true
  S.held, S.taken = S.held + 1, S.taken + units
  S.holders = S.holders .. pack('@LENGTH@', #record) .. record
  if S.first == 0 or till < S.first then
    S.first = till
  end
  if till + delay > S.keep then
    S.keep = till + delay
  end
  if phase == 'H' then
    event('g', record)
  end
  return S.last
end

-- The channel of the client that has sent a request.
local function channel(prefix, request)
  return prefix .. string.format('%08x%08x', unpack('>I4I4', request))
end

-- Grants from the head of the queue while there is room; the grant of `me` is returned as the reply.
local function settle(me)
  local mine
  local at = 1
  while at <= #S.waiters and not opens do
    local length = unpack('@LENGTH@', S.waiters, at)
    local record = sub(S.waiters, at + @#LENGTH@, at + @#LENGTH@ - 1 + length)
    local _, request, _, _, till, lease, delay, units, details, rest = unpack('@RECORD@', record)
    if till <= now then
      ended(record, 'x', till)
    elseif S.taken + units > S.limit then
      break
    else
      S.waiting = S.waiting - 1
      local seq = grant('H', request, lease, delay, units, details, sub(record, rest))
      if request == me then
        mine = granted(seq)
      elseif NOTIFY == 'g' then
        redis.pcall('PUBLISH', channel(WAKE, request), request .. granted(seq))
      elseif NOTIFY == 'h' then
        redis.pcall('PUBLISH', channel(WAKE, request), request)
      else
        redis.pcall('SPUBLISH', channel(K .. ':', request), request)
      end
    end
    at = at + @#LENGTH@ + length
  end
  if at > 1 then
    S.waiters = sub(S.waiters, at)
  end
  return mine
end

-- The waiter with this request; one that has expired is ended, wherever it is in the queue.
local function waiter(request)
  local at, record = seek(S.waiters, request)
  if record and unpack('<I8', record, 1 + @RECORD.until@) <= now then
    finish('waiters', at, record, 'x')
    return
  end
  return at, record
end

-- How many waiters are before this position; approximate if they are very many.
local function ahead(place)
  if place > 65536 then
    return math.floor(S.waiting * place / #S.waiters)
  end
  local count, at = 0, 1
  while at < place do
    count, at = count + 1, at + @#LENGTH@ + unpack('@LENGTH@', S.waiters, at)
  end
  return count
end
