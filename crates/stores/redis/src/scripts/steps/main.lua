local unpack, pack, sub, find = struct.unpack, struct.pack, string.sub, string.find
local call = redis.call

local n = #KEYS
local WAKE, EVENTS, TELL, REMEMBER, RUN = ARGV[n + 1], ARGV[n + 2], ARGV[n + 3], ARGV[n + 4], ARGV[n + 5]
local HIGHEST, FLOOR = ARGV[n + 8], ARGV[n + 9]
local HEAD = '<c1I8I8I8I4I2'
local CROWD = '<I4I8I4I4I4I8I8I8'
local RECORD = '<c1c16I8I8I8I4I4I4I2'

-- Milliseconds and microseconds since 2020. Redis stops this clock while a script runs.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2] - 1577836800000000
local now = (micros - micros % 1000) / 1000
if micros < 0 then
  return redis.error_reply('CLOCK the clock of the server is before 2020')
end

-- In strict mode: when granting may begin, after data were lost or another server took over.
--
-- Data are those of this server's present time as master when they carry its marks: the id of its
-- run, another one after each restart, and that of its history, another one after each time as a
-- replica (and when a first replica comes), when its data were those of another server.
local opens, refused
if RUN ~= '' then
  local key, mine = ARGV[n + 6], tonumber(ARGV[n + 7])
  local history = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  local marks = RUN .. (history or '')
  local known = call('GET', key)
  local longest, before = mine, nil
  if known and #known > 16 then
    opens, longest, before = unpack('<I8I8', known)
    before = sub(known, before)
  end
  -- No pause ends later than its length from now: if it seems to, the clock was set back.
  if before ~= marks or opens > now + longest then
    opens = now + longest
    call('SET', key, pack('<I8I8', opens, longest) .. marks)
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
-- Nobody watches and nothing is closed: a mutex can take the short cuts.
local short = not opens and not refused and not watched
local remember = tonumber(REMEMBER)
local all

local replies = {}
for i = 1, n do
  local key, step = KEYS[i], ARGV[i]
  local op = sub(step, 1, 1)
  local state = redis.pcall('GET', key)
  -- What a short cut writes, until when it must be kept, its reply, and which client gets a message.
  local to_form, to_last, to_memory, body, needed, reply, channel, message
  local ends, kept, before, highest = 0, 0, 0, nil
  local failed = type(state) == 'table' and state.err

  -- The short cuts of a mutex: a claim of a free one; its release or renewal by a holder whom nobody
  -- waits for; a claim that has to wait, and a release to the next in the queue. They do what the
  -- general case would do. Whatever else there may be (somebody has run out, the clock was set back, a
  -- request that is known already, a string that is not ours) is left to it. They are not functions,
  -- because making one costs as much as a third of a step.
  if short and not failed and (op == 'c' or op == 'r' or op == 'n') and (not state or #state > 30) then
    local form, last, memory, predecessor, at = 'M', 0, 0, 0, 32
    if state then
      form, last, ends, kept, memory, predecessor = unpack(HEAD, state)
      at, before = 32 + memory, last
    else
      highest = redis.pcall('GET', HIGHEST)
      -- False if the key cannot be used.
      highest = type(highest) ~= 'table' and (tonumber(highest) or FLOOR == '' and 0)
      last = highest or tonumber(FLOOR) or 0
    end
    local request = sub(step, 2, 17)
    if op == 'c' then
      local after, latest, limit, queue, lease, delay, units = unpack('<I8I8I4BI4I4I4', step, 18)
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
            -- Ahead of this clock: after those of all names, so that no other one has the same number.
            highest = redis.pcall('GET', HIGHEST)
            highest = type(highest) ~= 'table' and (tonumber(highest) or FLOOR == '' and 0)
            last = highest and highest >= last and highest + 1 or last
          end
          local till = now + lease + 1
          needed = till + delay
          to_form, to_last, to_memory = 'M', last, state and sub(state, 26) or '\0\0\0\0\0\0'
          body = (queue == 2 and 'P' or 'H') .. request .. pack('<I8I8I8', last, now, till)
            .. sub(step, 39)
          reply = predecessor > 0 and 'G' .. pack('<I8', last) .. sub(state, 32, 31 + predecessor)
            or 'G' .. pack('<I8I8c1', last, 0, '-')
        else
          local waiting, first, keep, holder, waiters = 0, 0, 0, nil, ''
          if form == 'M' and #state >= at + 54 then
            local term, pause
            first, term, pause = unpack('<I8I4I4', state, at + 33)
            -- Not a delay, and the clock was not set back.
            if sub(state, at, at) ~= 'D' and first <= now + term + 1 then
              keep, holder = first + pause, sub(state, at)
            end
          elseif form == 'G' and #state >= at + 43 then
            local used, _, held, bytes, seen
            used, _, held, waiting, bytes, first, keep, seen, at = unpack(CROWD, state, at)
            if used == 1 and held == 1 and now >= seen then
              holder, waiters = sub(state, at + 4, at + bytes - 1), sub(state, at + bytes)
            end
          end
          if holder and first > now then
            if queue ~= 1 then
              reply = 'B' .. pack('<I8', first - now)
            else
              local till = now + lease + 1
              needed = till > keep and till or keep
              local record = 'W' .. request .. pack('<I8I8I8', 0, now, till) .. sub(step, 39)
              to_form, to_last, to_memory = 'G', last, sub(state, 26, 31 + memory)
              body = pack(CROWD, 1, 1, 1, waiting + 1, #holder + 4, first, needed, now)
                .. pack('<I4', #holder) .. holder .. waiters .. pack('<I4', #record) .. record
              reply = 'Q' .. pack('<I4I8', waiting, first - now)
            end
          end
        end
      end
    elseif state and (form == 'M' and #state >= at + 54 or form == 'G' and #state >= at + 43) then
      local waiting, bytes, keep, seen, start = 0, 0, 0, 0, at
      local mine = true
      if form == 'G' then
        local used, _, held
        used, _, held, waiting, bytes, _, keep, seen, start = unpack(CROWD, state, at)
        mine = used == 1 and held == 1 and now >= seen and op == 'r' and TELL == 'g'
        start = start + 4
      end
      if mine then
        local phase, who, seq, since, till, lease, delay, _, _, rest = unpack(RECORD, state, start)
        if phase == 'H' and till > now and till <= now + lease + 1 and who == request
          and unpack('<I8', step, 18) == seq then
          if op == 'n' then
            local term, published = unpack('<I4B', step, 26)
            if published == 0 then
              till = now + term + 1
              needed = till + delay
              to_form, to_last, to_memory = 'M', last, sub(state, 26, 31 + memory)
              body = 'H' .. request .. pack('<I8I8I8I4', seq, since, till, term)
                .. sub(state, start + 45)
              reply = 'H'
            end
          elseif kept <= now or memory - predecessor <= 203 then
            -- Eight ended requests are remembered. The oldest one is not dropped here while one of them
            -- has to be kept.
            local owner = unpack('<I2c0', state, rest)
            local ended = sub(sub(state, 32 + predecessor, 31 + memory) .. request
              .. pack('<I4', seq % 4294967296) .. 'r' .. sub(step, 26, 33), -232)
            local former = pack('<I8c1', seq, 'r') .. owner
            local remembered = pack('<I4I2', #former + #ended, #former) .. former .. ended
            local keep_until = unpack('<I8', step, 26)
            if keep_until > kept then
              kept = keep_until
            end
            if waiting == 0 then
              needed = now
              to_form, to_last, to_memory, body = 'M', last, remembered, ''
              reply = 'H'
            else
              -- To the next in the queue.
              local next = start - 4 + bytes
              local length = unpack('<I4', state, next)
              local _, heir, _, _, patience, term, pause = unpack('<c1c16I8I8I8I4I4', state, next + 4)
              if patience > now then
                last = last + 1
                if micros > last then
                  last = micros
                else
                  highest = redis.pcall('GET', HIGHEST)
                  highest = type(highest) ~= 'table' and (tonumber(highest) or FLOOR == '' and 0)
                  last = highest and highest >= last and highest + 1 or last
                end
                local stays = now + term + 1
                local record = 'H' .. heir .. pack('<I8I8I8', last, now, stays)
                  .. sub(state, next + 45, next + 3 + length)
                needed = stays + pause
                if waiting == 1 then
                  to_form, to_last, to_memory, body = 'M', last, remembered, record
                else
                  needed = needed > keep and needed or keep
                  to_form, to_last, to_memory = 'G', last, remembered
                  body = pack(CROWD, 1, 1, 1, waiting - 1, #record + 4, stays, needed, now)
                    .. pack('<I4', #record) .. record .. sub(state, next + 4 + length)
                end
                channel = WAKE .. string.format('%08x%08x', unpack('>I4I4', heir))
                message = heir .. 'G' .. pack('<I8', last) .. former
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
        -- The next number after the key has ended must be greater. The highest number makes sure of it.
        if highest == nil then
          highest = redis.pcall('GET', HIGHEST)
          highest = type(highest) ~= 'table' and (tonumber(highest) or FLOOR == '' and 0)
        end
        if highest and highest < to_last then
          highest = not redis.pcall('SET', HIGHEST,
            string.format('%.0f', to_last == micros and to_last + 1000000 or to_last)).err
        end
        if not highest and to_last > micros and to_last / 1000 > needed then
          -- It does not, and the number is ahead of this clock: the key is kept until it is not.
          needed = (to_last - to_last % 1000) / 1000 + 1
        end
      end
      if ends >= needed + remember / 2 and ends <= needed + remember * 3 / 2 then
        done = redis.pcall('SET', key, pack('<c1I8I8I8', to_form, to_last, ends, kept) .. to_memory .. body, 'KEEPTTL')
      else
        ends = needed + remember
        done = redis.pcall('SET', key, pack('<c1I8I8I8', to_form, to_last, ends, kept) .. to_memory .. body,
          'PX', ends - now)
      end
      failed = done.err
      if channel and not failed then
        redis.pcall('PUBLISH', channel, message)
      end
    end
  end

  -- One step that fails takes no other with it; but a replica can take none.
  if failed or not reply then
    local done = not failed
    if done then
      if refused and op == 'c' then
        done, reply = false, refused
      else
        all = all or general(now, micros, opens, watched, WAKE, EVENTS, TELL, remember, HIGHEST, FLOOR)
        done, reply = pcall(all, key, state, step)
      end
    else
      reply = failed
    end
    if not done then
      local why = type(reply) == 'table' and reply.err or tostring(reply)
      if op ~= 'c' and type(state) ~= 'table' and find(why, 'OOM', 1, true) then
        -- Memory is short, so the first write was refused. What is held can still be renewed and given
        -- up: after a write that cannot need memory, this script may write.
        redis.pcall('DEL', key .. ':')
        all = all or general(now, micros, opens, watched, WAKE, EVENTS, TELL, remember, HIGHEST, FLOOR)
        done, reply = pcall(all, key, state, step)
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
-- The client learns this clock from it, and so until when its next claims may be applied.
replies[n + 1] = now
return replies
