-- The loop over the steps of a call, and the fast path of a mutex. It comes after the slow path:
-- slow_path/state.lua explains keys, arguments and the state.
--
-- The fast path handles the common steps of a mutex: a claim of a free one, a claim that has to wait, a
-- renewal without waiters, and a release, also to the next in the queue. It writes exactly what the slow
-- path would write (a test in src/scripts/tests.rs compares them byte by byte), except that an expired waiter
-- at the head of the queue may stay until the next step on the slow path. Every other case is left to the
-- slow path: an expired lease, a clock that was set back, a repeated request, a lock-delay, a client that
-- watches events, strict mode that refuses grants, a string that is not ours. It has no functions, because
-- creating a closure costs as much as a third of a step.

local unpack, pack, sub, find = struct.unpack, struct.pack, string.sub, string.find
local call = redis.call

local n = #KEYS
local WAKE, EVENTS, NOTIFY, REMEMBER, RUN = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4], ARGV[n + 5]
local HIGHEST, FLOOR = ARGV[n + 8], ARGV[n + 9]

-- Milliseconds and microseconds since 2020.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2] - @EPOCH_MICROS@
local now = (micros - micros % 1000) / 1000
if micros < 0 then
  return redis.error_reply('CLOCK the clock of the server is before 2020')
end

-- In strict mode: when grants open, after a loss of data or a failover.
--
-- The data belong to this server's present time as master if they carry its marks: its run id, which
-- changes with each restart, and its replication id, which changes after each time as a replica (and when
-- a first replica connects), when its data were those of another server.
local opens, refused
if RUN ~= '' then
  local key, mine = ARGV[n + 6], tonumber(ARGV[n + 7])
  local history = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  local marks = RUN .. (history or '')
  local known = call('GET', key)
  local longest, before = mine, nil
  if known and #known > @#EPOCH@ then
    opens, longest, before = unpack('@EPOCH@', known)
    before = sub(known, before)
  end
  -- No pause ends later than its length from now: if it seems to, the clock was set back.
  if before ~= marks or opens > now + longest then
    opens = now + longest
    call('SET', key, pack('@EPOCH@', opens, longest) .. marks)
  end
  if longest ~= mine then
    -- Its pause would be too short for leases of others, or theirs for its own.
    refused = 'strict mode has longest=' .. longest .. 'ms here, and this client ' .. mine .. 'ms'
  end
  if opens <= now then
    opens = nil
  end
end

local watched = call('PUBSUB', 'NUMSUB', EVENTS)[2] > 0
local fast = not opens and not refused and not watched
local remember = tonumber(REMEMBER)
local slow

local replies = {}
for i = 1, n do
  local key, step = KEYS[i], ARGV[i]
  local op = sub(step, 1, 1)
  local state = redis.pcall('GET', key)
  -- What the fast path writes, until when it must be kept, its reply, and the message to another client.
  local to_form, to_last, to_memory, body, needed, reply, channel, message
  local ends, kept, before, highest = 0, 0, 0, nil
  local failed = type(state) == 'table' and state.err

  if fast and not failed and (op == 'c' or op == 'r' or op == 'n') and (not state or #state >= @#HEAD@) then
    local form, last, memory, predecessor, at = 'M', 0, 0, 0, 1 + @#HEAD@
    if state then
      form, last, ends, kept, memory, predecessor = unpack('@HEAD@', state)
      at, before = 1 + @#HEAD@ + memory, last
    else
      highest = redis.pcall('GET', HIGHEST)
      -- False if the key cannot be used.
      highest = type(highest) ~= 'table' and (tonumber(highest) or FLOOR == '' and 0)
      last = highest or tonumber(FLOOR) or 0
    end
    local request = sub(step, 1 + @CLAIM.request@, @CLAIM.after@)
    if op == 'c' then
      local after, latest, limit, queue, lease, delay, units =
        unpack('@CLAIM.after-units@', step, 1 + @CLAIM.after@)
      if limit == 1 and units == 1 and now <= latest
        and not (state and find(state, request, 1, true)) then
        if after > last then
          last = after
        end
        if form == 'M' and (not state or at == #state + 1) then
          last = last + 1
          if micros > last then
            last = micros
          elseif state then
            -- Ahead of this clock: after the numbers of all names, so that no other name has the same.
            highest = redis.pcall('GET', HIGHEST)
            highest = type(highest) ~= 'table' and (tonumber(highest) or FLOOR == '' and 0)
            last = highest and highest >= last and highest + 1 or last
          end
          local till = now + lease + 1
          needed = till + delay
          to_form, to_last, to_memory = 'M', last, state and sub(state, 1 + @HEAD.memory@) or '\0\0\0\0\0\0'
          body = (queue == 2 and 'P' or 'H') .. request .. pack('@RECORD.seq-until@', last, now, till)
            .. sub(step, 1 + @CLAIM.lease@)
          reply = predecessor > 0 and 'G' .. pack('<I8', last) .. sub(state, 1 + @#HEAD@, @#HEAD@ + predecessor)
            or 'G' .. pack('<I8I8c1', last, 0, '-')
        else
          local waiting, first, keep, holder, waiters = 0, 0, 0, nil, ''
          if form == 'M' and #state >= at + @#RECORD@ - 1 then
            local term, pause
            first, term, pause = unpack('@RECORD.until-delay@', state, at + @RECORD.until@)
            -- Not a delay, and the clock was not set back.
            if sub(state, at, at) ~= 'D' and first <= now + term + 1 then
              keep, holder = first + pause, sub(state, at)
            end
          elseif form == 'G' and #state >= at + @#GROUP@ - 1 then
            local used, _, held, bytes, written
            used, _, held, waiting, bytes, first, keep, written, at = unpack('@GROUP@', state, at)
            if used == 1 and held == 1 and now >= written then
              holder, waiters = sub(state, at + @#LENGTH@, at + bytes - 1), sub(state, at + bytes)
            end
          end
          if holder and first > now then
            if queue ~= 1 then
              reply = 'B' .. pack('<I8', first - now)
            else
              local till = now + lease + 1
              needed = till > keep and till or keep
              local record = 'W' .. request .. pack('@RECORD.seq-until@', 0, now, till)
                .. sub(step, 1 + @CLAIM.lease@)
              to_form, to_last, to_memory = 'G', last, sub(state, 1 + @HEAD.memory@, @#HEAD@ + memory)
              body = pack('@GROUP@', 1, 1, 1, waiting + 1, #holder + @#LENGTH@, first, needed, now)
                .. pack('@LENGTH@', #holder) .. holder .. waiters .. pack('@LENGTH@', #record) .. record
              reply = 'Q' .. pack('<I4I8', waiting, first - now)
            end
          end
        end
      end
    elseif state and (form == 'M' and #state >= at + @#RECORD@ - 1 or form == 'G' and #state >= at + @#GROUP@ - 1) then
      local waiting, bytes, keep, written, start = 0, 0, 0, 0, at
      local mine = true
      if form == 'G' then
        local used, _, held
        used, _, held, waiting, bytes, _, keep, written, start = unpack('@GROUP@', state, at)
        mine = used == 1 and held == 1 and now >= written and op == 'r' and NOTIFY == 'g'
        start = start + @#LENGTH@
      end
      if mine then
        local phase, who, seq, since, till, lease, delay, _, _, rest = unpack('@RECORD@', state, start)
        if phase == 'H' and till > now and till <= now + lease + 1 and who == request
          and unpack('<I8', step, 1 + @RELEASE.seq@) == seq then
          if op == 'n' then
            local term, published = unpack('@RENEW.lease-published@', step, 1 + @RENEW.lease@)
            if published == 0 then
              till = now + term + 1
              needed = till + delay
              to_form, to_last, to_memory = 'M', last, sub(state, 1 + @HEAD.memory@, @#HEAD@ + memory)
              body = 'H' .. request .. pack('@RECORD.seq-lease@', seq, since, till, term)
                .. sub(state, start + @RECORD.delay@)
              reply = 'H'
            end
          elseif kept <= now or memory - predecessor <= @#ENDED@ * (@REMEMBERED@ - 1) then
            -- The oldest ended claim is not dropped here while one of them must be kept.
            local owner = unpack('<I2c0', state, rest)
            local ended = sub(sub(state, 1 + @#HEAD@ + predecessor, @#HEAD@ + memory) .. request
              .. pack('<I4', seq % 4294967296) .. 'r' .. sub(step, 1 + @RELEASE.keep@, @#RELEASE@),
              -@#ENDED@ * @REMEMBERED@)
            local former = pack('@PREDECESSOR@', seq, 'r') .. owner
            local remembered = pack('@HEAD.memory-predecessor@', #former + #ended, #former) .. former .. ended
            local keep_until = unpack('<I8', step, 1 + @RELEASE.keep@)
            if keep_until > kept then
              kept = keep_until
            end
            if waiting == 0 then
              needed = now
              to_form, to_last, to_memory, body = 'M', last, remembered, ''
              reply = 'H'
            else
              -- To the next in the queue.
              local next = start - @#LENGTH@ + bytes
              local length = unpack('@LENGTH@', state, next)
              local _, successor, _, _, waits_until, term, pause =
                unpack('@RECORD.phase-delay@', state, next + @#LENGTH@)
              if waits_until > now then
                last = last + 1
                if micros > last then
                  last = micros
                else
                  highest = redis.pcall('GET', HIGHEST)
                  highest = type(highest) ~= 'table' and (tonumber(highest) or FLOOR == '' and 0)
                  last = highest and highest >= last and highest + 1 or last
                end
                local held_until = now + term + 1
                local record = 'H' .. successor .. pack('@RECORD.seq-until@', last, now, held_until)
                  .. sub(state, next + @#LENGTH@ + @RECORD.lease@, next + @#LENGTH@ - 1 + length)
                needed = held_until + pause
                if waiting == 1 then
                  to_form, to_last, to_memory, body = 'M', last, remembered, record
                else
                  needed = needed > keep and needed or keep
                  to_form, to_last, to_memory = 'G', last, remembered
                  body = pack('@GROUP@', 1, 1, 1, waiting - 1, #record + @#LENGTH@, held_until, needed, now)
                    .. pack('@LENGTH@', #record) .. record .. sub(state, next + @#LENGTH@ + length)
                end
                channel = WAKE .. string.format('%08x%08x', unpack('>I4I4', successor))
                message = successor .. 'G' .. pack('<I8', last) .. former
                reply = 'H'
              end
            end
          end
        end
      end
    end
    if body then
      local done
      if kept > needed then
        needed = kept
      end
      if to_last > before or to_last > micros then
        -- The next number after the key has ended must be greater. The highest number ensures it.
        if highest == nil then
          highest = redis.pcall('GET', HIGHEST)
          highest = type(highest) ~= 'table' and (tonumber(highest) or FLOOR == '' and 0)
        end
        if highest and highest < to_last then
          highest = not redis.pcall('SET', HIGHEST,
            string.format('%.0f', to_last == micros and to_last + 1000000 or to_last)).err
        end
        if not highest and to_last > micros and to_last / 1000 > needed then
          -- It cannot be used, and the number is ahead of this clock: the key is kept until it is not.
          needed = (to_last - to_last % 1000) / 1000 + 1
        end
      end
      if ends >= needed + remember / 2 and ends <= needed + remember * 3 / 2 then
        done = redis.pcall('SET', key, pack('@HEAD.form-kept@', to_form, to_last, ends, kept) .. to_memory .. body,
          'KEEPTTL')
      else
        ends = needed + remember
        done = redis.pcall('SET', key, pack('@HEAD.form-kept@', to_form, to_last, ends, kept) .. to_memory .. body,
          'PX', ends - now)
      end
      failed = done.err
      if channel and not failed then
        redis.pcall('PUBLISH', channel, message)
      end
    end
  end

  -- A step that fails does not affect the others, except on a replica, which can apply none.
  if failed or not reply then
    local done = not failed
    if done then
      if refused and op == 'c' then
        done, reply = false, refused
      else
        slow = slow or slow_path(now, micros, opens, watched, WAKE, EVENTS, NOTIFY, remember, HIGHEST, FLOOR)
        done, reply = pcall(slow, key, state, step)
      end
    else
      reply = failed
    end
    if not done then
      local why = type(reply) == 'table' and reply.err or tostring(reply)
      if op ~= 'c' and type(state) ~= 'table' and find(why, 'OOM', 1, true) then
        -- Out of memory: the first write was refused. Holds can still be renewed and released: after a
        -- write that needs no memory, this script may write.
        redis.pcall('DEL', key .. ':')
        slow = slow or slow_path(now, micros, opens, watched, WAKE, EVENTS, NOTIFY, remember, HIGHEST, FLOOR)
        done, reply = pcall(slow, key, state, step)
        why = type(reply) == 'table' and reply.err or tostring(reply)
      end
      if not done then
        if sub(why, 1, 8) == 'READONLY' then
          return redis.error_reply(why)
        end
        reply = '!' .. why
      end
    end
  end
  replies[i] = reply
end
-- The client estimates this clock from it, and dates its next claims.
replies[n + 1] = now
return replies
