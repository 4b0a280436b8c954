-- Part of the slow path: the steps.

local function lost(request)
  return fate(request) or 'f'
end

-- The record with a lease that ends no sooner.
local function extended(record, lease)
  local phase, request, seq, since, till, before, delay, units, details, at = unpack('@RECORD@', record)
  if lease > before then
    before = lease
  end
  if now + lease + 1 > till then
    till = now + lease + 1
  end
  return pack('@RECORD@', phase, request, seq, since, till, before, delay, units, details)
    .. sub(record, at)
end

local function claim(step)
  local _, request, after, latest, limit, queue, lease, delay, units, details, rest =
    unpack('@CLAIM@', step)
  if after > S.last then
    -- The client has seen a greater number than this server, which has lost its data.
    S.last = after
  end
  expire()
  local at, record = seek(S.holders, request)
  if record then
    if sub(record, 1, 1) == 'D' then
      local why = lost(request)
      keep_ended(request, why, latest)
      return 'X' .. why
    end
    put('holders', at, record, extended(record, lease))
    settle()
    return granted((unpack('<I8', record, 1 + @RECORD.seq@)))
  end
  at, record = waiter(request)
  if record then
    put('waiters', at, record, extended(record, lease))
    local mine = settle(request)
    if mine then
      return mine
    end
    return 'Q' .. pack('<I4I8', ahead((seek(S.waiters, request))), retry_after())
  end
  local gone = fate(request)
  settle()
  if gone then
    -- Its client uses another request from now on. Copies of this one may still be in transit.
    keep_ended(request, gone, latest)
    return 'X' .. gone
  end
  if now > latest then
    return 'T' .. pack('<I8', now)
  end
  if S.held == 0 and S.waiting == 0 then
    S.limit, S.taken, S.first, S.keep = limit, 0, 0, 0
  elseif S.limit ~= limit then
    return 'M' .. pack('<I4', S.limit)
  end
  if S.waiting == 0 and S.taken + units <= S.limit and not opens then
    -- 2: prepared, on one of several servers; the step `commit` makes a hold of it.
    local phase = queue == 2 and 'P' or 'H'
    return granted(grant(phase, request, lease, delay, units, details, sub(step, rest)))
  end
  if queue ~= 1 then
    return 'B' .. pack('<I8', retry_after())
  end
  local till = now + lease + 1
  record = pack('@RECORD@', 'W', request, 0, now, till, lease, delay, units, details) .. sub(step, rest)
  S.dirty = true
  S.waiting, S.waiters = S.waiting + 1, S.waiters .. pack('@LENGTH@', #record) .. record
  if till > S.keep then
    S.keep = till
  end
  event('q', record)
  return 'Q' .. pack('<I4I8', S.waiting - 1, retry_after())
end

-- The live hold with this request and number.
local function matching(request, seq)
  local at, record = seek(S.holders, request)
  if record and sub(record, 1, 1) == 'H' and unpack('<I8', record, 1 + @RECORD.seq@) == seq then
    return at, record
  end
end

local function renew(step)
  local _, request, seq, lease, published, value = unpack('@RENEW@', step)
  expire()
  local at, record = matching(request, seq)
  local reply = 'H'
  if record then
    local _, _, _, since, _, _, delay, units, details, rest = unpack('@RECORD@', record)
    rest = sub(record, rest)
    if published == 1 then
      rest = sub(rest, 1, details) .. '\1' .. sub(step, value)
    end
    local renewed = pack('@RECORD@', 'H', request, seq, since, now + lease + 1, lease, delay, units, details)
      .. rest
    put('holders', at, record, renewed)
    if published == 1 then
      event('p', renewed)
    end
  else
    reply = 'X' .. lost(request)
  end
  settle()
  return reply
end

-- Commits a prepared claim on several servers: it becomes a hold with the number of all of them and the
-- whole lease. A vote is given to a number that is greater than all that this server has granted, or that
-- it granted to this very claim. Without a vote the number was granted already, and is only recorded.
local function commit(step)
  local _, request, from, to, lease, vote = unpack('@COMMIT@', step)
  expire()
  local at, record = seek(S.holders, request)
  if not record or sub(record, 1, 1) == 'D' then
    return 'X' .. lost(request)
  end
  local phase, _, seq, since, _, _, delay, units, details, rest = unpack('@RECORD@', record)
  if vote == 1 then
    if seq > to or seq < to and S.last >= to then
      return 'L' .. pack('<I8', S.last)
    end
  elseif seq ~= from and seq ~= to then
    return 'Xf'
  end
  if to > S.last then
    S.last = to
  end
  local committed = pack('@RECORD@', 'H', request, to, since, now + lease + 1, lease, delay, units, details)
    .. sub(record, rest)
  put('holders', at, record, committed)
  if phase == 'P' then
    event('g', committed)
  end
  return 'H'
end

-- Aborts a prepared claim, or a hold whose claimant never got its grant, without a trace.
local function abort(step)
  local _, request, one, other = unpack('@ABORT@', step)
  expire()
  local at, record = seek(S.holders, request)
  if record and sub(record, 1, 1) ~= 'D' then
    local phase, _, seq, _, _, _, _, units = unpack('@RECORD@', record)
    if seq == one or seq == other then
      S.held, S.taken = S.held - 1, S.taken - units
      put('holders', at, record)
      if phase == 'H' then
        event('r', record)
      end
    end
  end
  settle()
  return 'H'
end

local function release(step)
  local _, request, seq, keep = unpack('@RELEASE@', step)
  expire()
  local at, record = matching(request, seq)
  local reply = 'H'
  if record then
    finish('holders', at, record, 'r', keep)
  else
    -- A repeated release, whose first reply was lost, is a release again.
    local ending, number = fate(request)
    if ending ~= 'r' or number ~= seq % 4294967296 then
      reply = 'X' .. (ending or 'f')
    end
    keep_ended(request, ending or 'f', keep)
  end
  settle()
  return reply
end

local function withdraw(step)
  local _, request, keep = unpack('@WITHDRAW@', step)
  expire()
  local which = 'holders'
  local at, record = seek(S.holders, request)
  if record and sub(record, 1, 1) == 'D' then
    record = nil
  elseif not record then
    which = 'waiters'
    at, record = waiter(request)
  end
  if record then
    finish(which, at, record, 'r', keep)
  elseif not fate(request) then
    -- The claim has not arrived yet: it is refused when it does.
    remember(request, 0, 'r', keep)
    S.dirty = true
  else
    keep_ended(request, 'r', keep)
  end
  settle()
  return 'H'
end

local function evict(step)
  local _, seq = unpack('@NUMBER@', step)
  local reply, held = 'E', false
  expire()
  each(S.holders, function(record)
    held = held or sub(record, 1, 1) == 'H'
  end)
  S.holders = each(S.holders, function(record)
    local phase, _, number, _, _, _, _, units = unpack('@RECORD@', record)
    if seq ~= 0 and number ~= seq then
      return record
    end
    if phase == 'H' then
      reply = reply .. 'H' .. pack('<I8', number)
      return ended(record, 'e', now)
    end
    if phase == 'D' and (seq ~= 0 or not held) then
      -- Its hold has ended already; now its delay ends.
      reply = reply .. 'D' .. pack('<I8', number)
      S.dirty = true
      S.held, S.taken = S.held - 1, S.taken - units
      return
    end
    return record
  end)
  update_first()
  settle()
  return reply
end

local function check(step)
  local _, seq = unpack('@NUMBER@', step)
  local reply = 'Xf'
  each(S.holders, function(record)
    local phase, _, number, _, till = unpack('@RECORD.phase-until@', record)
    if phase == 'H' and number == seq and till > now then
      reply = 'H'
    end
  end)
  return reply
end

local steps = {
  c = claim, n = renew, t = commit, r = release, b = abort, w = withdraw, e = evict, k = check,
}

return function(key, state, step)
  load(key, state)
  local reply = steps[sub(step, 1, 1)](step)
  save()
  return reply
end

end
