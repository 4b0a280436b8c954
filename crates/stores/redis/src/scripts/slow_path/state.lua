-- The steps of locks: claim, renew, commit, release, abort, withdraw, evict, check.
--
-- KEYS[i]            the state of the name of step i: the whole lock
-- ARGV[i]            step i, packed
-- ARGV[#KEYS + 1]    prefix of the channels with the grants of a client
-- ARGV[#KEYS + 2]    channel of events
-- ARGV[#KEYS + 3]    how a client is notified: g = the grant itself, h = a hint, s = a hint by sharded pub/sub
-- ARGV[#KEYS + 4]    how long an idle name is remembered, in ms
-- ARGV[#KEYS + 5]    strict mode: run id of the server, or empty
-- ARGV[#KEYS + 6]    strict mode: the key that shows whether the data are those of this run
-- ARGV[#KEYS + 7]    strict mode: the longest lease + lock-delay in ms; after a loss of data nothing is granted
--                    for this time
-- ARGV[#KEYS + 8]    the key of the highest number; on a cluster that of the slot
-- ARGV[#KEYS + 9]    the highest number at the server that the slot moves away from, if it moves, else empty
--
-- The reply is one packed string for each step, and then this server's time in ms since 2020.
-- docs/stores/redis.md explains the state.
--
-- The script is four files in a row. state.lua, queue.lua and steps.lua in slow_path are one function, the slow
-- path: all steps in full. Its inner functions are created only when needed, because creating them costs more
-- than a step. fast_path.lua has the loop over the steps, and a fast path for the common steps of a mutex, with
-- the same effects. Formats and offsets in at signs are filled in from src/record/layout.rs.
--
-- A lock is one key, because a slot of a cluster moves key by key, and because a lock of several keys can lose
-- some of them. The key is a string, because reading and writing a short string is the cheapest operation of
-- Redis. It has two forms:
--
--   M    a mutex without waiters: HEAD, then the memory (PREDECESSOR with its owner, and ENDED claims), then the
--        RECORD of the holder, if there is one
--   G    anything else: HEAD and memory, then GROUP, the records of the holders and those of the waiters in
--        their order, each after its LENGTH
--
-- The end of the key is moved in large steps only, because that costs as much as the rest of a write: a name is
-- remembered for the configured time, plus or minus a half.
--
-- A claim carries the latest time at which this server may apply it as a new one, by this server's clock. A copy
-- that arrives later is refused. A release or a withdrawal carries the same for the copies of its claim without a
-- reply: until then the ended claim is remembered, however many others end meanwhile. So a late copy is refused
-- for one reason or the other, and one clock decides both. A claim that ends by eviction or expiry has no such
-- time: it is remembered for as long as any copy sent before may be applied.
--
-- The first number of a name after its state has ended is greater than all before, also if this clock was set
-- back, or if a number came from the clock of another server. The highest number of all names is kept for that,
-- in a key of its own, on a cluster in one for each slot: a name without state begins after it. The key is written
-- for each new name, and for the others once a second, because a number that is taken from the clock reserves the
-- next second.
-- A user may have no right to that key, and while a slot moves it may be at the other server (and must not be
-- created here then: it could not be moved). Then a state does not end before this clock has passed its last
-- number.

-- The slow path: any number of holders and waiters, expired leases, delays.
local function slow_path(now, micros, opens, watched, WAKE, EVENTS, NOTIFY, REMEMBER, HIGHEST, FLOOR)

local unpack, pack, sub, find = struct.unpack, struct.pack, string.sub, string.find
local call = redis.call

-- How long after it was sent a copy of a claim may be applied, in ms: at most for its lease, or for the first of
-- these if that is longer, whatever timeout its sender has. The sender's estimate of this clock may be ahead by the
-- second. After the third no copy is in transit any more (src/ledger.rs, src/connection/server_clock.rs).
local SHORTEST, AHEAD, OLD = 2000, 1000, 3600000

local K, S

local function event(kind, record)
  if watched then
    redis.pcall('PUBLISH', EVENTS, kind .. pack('<I8I2', micros, #K) .. K .. record)
  end
end

-- The highest number of all names; false if the key cannot be used.
local function highest()
  local known = redis.pcall('GET', HIGHEST)
  return type(known) ~= 'table' and (tonumber(known) or FLOOR == '' and 0)
end

-- Raises the highest number to the last one of this name. Returns whether it could.
local function raise_highest()
  local known = highest()
  if known and known < S.last then
    local number = string.format('%.0f', S.last == micros and S.last + 1000000 or S.last)
    return not redis.pcall('SET', HIGHEST, number).err
  end
  return known
end

local function load(key, state)
  K = key
  S = { limit = 0, taken = 0, held = 0, waiting = 0, first = 0, keep = 0, holders = '', waiters = '' }
  S.last, S.ends, S.kept, S.pseq, S.pending, S.powner, S.ended = 0, 0, 0, 0, '-', '', ''
  if not state then
    S.last = highest() or tonumber(FLOOR) or 0
    S.before = S.last
    return
  end
  local form, memory, predecessor, at, bytes, written
  form, S.last, S.ends, S.kept, memory, predecessor, at = unpack('@HEAD@', state)
  S.before = S.last
  if predecessor > 0 then
    S.pseq, S.pending = unpack('@PREDECESSOR@', state, at)
    S.powner = sub(state, at + @#PREDECESSOR@, at + predecessor - 1)
  end
  S.ended = sub(state, at + predecessor, at + memory - 1)
  at = at + memory
  if form == 'G' then
    S.limit, S.taken, S.held, S.waiting, bytes, S.first, S.keep, written, at = unpack('@GROUP@', state, at)
    S.holders, S.waiters = sub(state, at, at + bytes - 1), sub(state, at + bytes)
    S.set_back = now < written
  elseif form ~= 'M' then
    error('this lock was written by another version of clinch', 0)
  elseif at <= #state then
    local record = sub(state, at)
    local till, lease, delay = unpack('@RECORD.until-delay@', record, 1 + @RECORD.until@)
    S.limit, S.taken, S.held, S.first, S.keep = 1, 1, 1, till, till + delay
    if sub(record, 1, 1) == 'D' then
      lease, S.keep = delay, till
    end
    S.holders = pack('@LENGTH@', #record) .. record
    S.set_back = till > now + lease + 1
  end
end

local function save()
  if not S.dirty then
    return
  end
  local busy = S.held > 0 or S.waiting > 0
  local last = busy and S.keep > now and S.keep or now
  if S.kept > last then
    last = S.kept
  end
  if (S.last > S.before or S.last > micros) and not raise_highest() and S.last > micros and S.last / 1000 > last then
    last = (S.last - S.last % 1000) / 1000 + 1
  end
  local moved = S.ends < last + REMEMBER / 2 or S.ends > last + REMEMBER * 3 / 2
  if moved then
    S.ends = last + REMEMBER
  end
  local predecessor = ''
  if S.pseq > 0 then
    predecessor = pack('@PREDECESSOR@', S.pseq, S.pending) .. S.powner
  end
  local memory = #predecessor + #S.ended
  local state
  if not busy or S.limit == 1 and S.waiting == 0 then
    state = pack('@HEAD@', 'M', S.last, S.ends, S.kept, memory, #predecessor) .. predecessor .. S.ended
      .. sub(S.holders, 1 + @#LENGTH@)
  else
    state = pack('@HEAD@', 'G', S.last, S.ends, S.kept, memory, #predecessor) .. predecessor .. S.ended
      .. pack('@GROUP@', S.limit, S.taken, S.held, S.waiting, #S.holders, S.first, S.keep, now)
      .. S.holders .. S.waiters
  end
  if moved then
    call('SET', K, state, 'PX', S.ends - now)
  else
    call('SET', K, state, 'KEEPTTL')
  end
end

-- Remembers an ended claim. Of those before the last eight only the ones that must be kept remain.
local function remember(request, seq, ending, keep)
  S.ended = S.ended .. request .. pack('<I4', seq % 4294967296) .. ending .. pack('<I8', keep)
  if keep > S.kept then
    S.kept = keep
  end
  local left, at, newest = {}, 1, #S.ended - @#ENDED@ * @REMEMBERED@ + 1
  while at < newest and S.kept > now do
    if unpack('<I8', S.ended, at + @ENDED.keep@) > now then
      left[#left + 1] = sub(S.ended, at, at + @#ENDED@ - 1)
    end
    at = at + @#ENDED@
  end
  S.ended = table.concat(left) .. sub(S.ended, -@#ENDED@ * @REMEMBERED@)
end

-- How a claim has ended, the lower half of its number, and its position; nothing if it is not remembered.
local function fate(request)
  local at = find(S.ended, request, 1, true)
  if at and at % @#ENDED@ == 1 then
    local ending = at + @ENDED.ending@
    return sub(S.ended, ending, ending), unpack('<I4', S.ended, at + @ENDED.seq@), at
  end
end

-- Ensures that an ended claim is remembered until `keep`: a copy of it may still arrive.
local function keep_ended(request, ending, keep)
  if keep <= now then
    return
  end
  local known, _, at = fate(request)
  S.dirty = true
  if not known then
    remember(request, 0, ending, keep)
  elseif unpack('<I8', S.ended, at + @ENDED.keep@) < keep then
    S.ended = sub(S.ended, 1, at + @ENDED.keep@ - 1) .. pack('<I8', keep) .. sub(S.ended, at + @#ENDED@)
    if keep > S.kept then
      S.kept = keep
    end
  end
end
