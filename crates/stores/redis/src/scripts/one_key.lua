-- On a cluster a lock is one key. A slot moves key by key, so a lock of several keys would be torn
-- apart on the way: each half would take the other for lost, and grant what is held.
--
-- This is `call` for the scripts that follow: it keeps what they write to the state and to its side
-- keys as members of one sorted set, whose scores are all 0, so that they lie in the order of their
-- bytes:
--
--   s STATE                    the state itself
--   w REQUEST RECORD           a field of the hash `:w`; likewise h
--   q SCORE REQUEST            an entry of the sorted set `:q`; likewise x
--   Q REQUEST SCORE            where to find that entry; likewise X
--
-- A member is replaced by adding the new one first: a key that is empty for a moment is gone, and
-- on a server that gives its slot away it could not be made again.

local call
do
  local raw, sub, upper = redis.call, string.sub, string.upper
  local pack, unpack = struct.pack, struct.unpack
  local REQUEST = 32
  -- Greater than anything that follows in a member.
  local END = '\255'

  local function between(key, prefix)
    return raw('ZRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. END)
  end

  local function first(key, prefix)
    return raw('ZRANGEBYLEX', key, '[' .. prefix, '(' .. prefix .. END, 'LIMIT', 0, 1)[1]
  end

  local function replace(key, before, member)
    if before ~= member then
      raw('ZADD', key, 0, member)
      if before then
        raw('ZREM', key, before)
      end
    end
  end

  -- A side key is the state's key, a colon and a letter.
  local function part(side)
    return sub(side, 1, -3), sub(side, -1)
  end

  local one = {}

  function one.GET(key)
    local member = first(key, 's')
    return member and sub(member, 2) or false
  end

  function one.SET(key, value, _, ttl)
    replace(key, first(key, 's'), 's' .. value)
    raw('PEXPIRE', key, ttl)
  end

  -- Side keys live as long as the state.
  function one.PEXPIRE() end

  function one.HGET(side, field)
    local key, tag = part(side)
    local member = first(key, tag .. field)
    return member and sub(member, 2 + #field) or false
  end

  function one.HSET(side, field, value)
    local key, tag = part(side)
    replace(key, first(key, tag .. field), tag .. field .. value)
  end

  function one.HDEL(side, field)
    local key, tag = part(side)
    local member = first(key, tag .. field)
    if member then
      raw('ZREM', key, member)
    end
  end

  function one.HVALS(side)
    local key, tag = part(side)
    local values = {}
    for i, member in ipairs(between(key, tag)) do
      values[i] = sub(member, 2 + REQUEST)
    end
    return values
  end

  function one.ZADD(side, score, member)
    local key, tag = part(side)
    local where = upper(tag) .. member
    local before = first(key, where)
    local packed = pack('>I8', score)
    if before ~= where .. packed then
      replace(key, before and tag .. sub(before, -8) .. member, tag .. packed .. member)
      replace(key, before, where .. packed)
    end
  end

  function one.ZREM(side, member)
    local key, tag = part(side)
    local where = first(key, upper(tag) .. member)
    if where then
      raw('ZREM', key, where, tag .. sub(where, -8) .. member)
    end
  end

  function one.ZRANGE(side, _, to, scores)
    local key, tag = part(side)
    local found = to == 0 and { first(key, tag) } or between(key, tag)
    local entries = {}
    for _, entry in ipairs(found) do
      entries[#entries + 1] = sub(entry, 10)
      if scores then
        entries[#entries + 1] = unpack('>I8', entry, 2)
      end
    end
    return entries
  end

  function one.ZRANK(side, member)
    local key, tag = part(side)
    local where = first(key, upper(tag) .. member)
    return where and raw('ZLEXCOUNT', key, '[' .. tag, '(' .. tag .. sub(where, -8) .. member)
  end

  function one.DEL(...)
    for _, side in ipairs({ ... }) do
      local key, tag = part(side)
      for _, prefix in ipairs({ tag, upper(tag) }) do
        for _, member in ipairs(between(key, prefix)) do
          raw('ZREM', key, member)
        end
      end
    end
  end

  -- What has no key.
  function one.TIME()
    return raw('TIME')
  end

  function one.PUBSUB(...)
    return raw('PUBSUB', ...)
  end

  call = function(command, ...)
    return one[command](...)
  end
end
