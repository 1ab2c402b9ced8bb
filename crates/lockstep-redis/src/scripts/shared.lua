-- A lock that several hold: readers, or who has some of its permits. One alone is in the lock's text
-- whatever its share; the second one to come turns the text into "s<seconds> <microseconds> <of> <used>
-- <grants>": the last token, the total, how much of it is taken, and how many grants there were. Then
-- <lock>:h is a hash: claim -> "<number of the grant> <token> <since> <terms>", with a second line if
-- it is broken, the reason; and <lock>:e is a sorted set: claims by the end of their
-- leases in microseconds. So neither to join nor to leave takes longer the more there are. It becomes
-- one text again when nobody is left.
--
-- These functions are made when the first of them is needed: that takes time too, and a lock that one
-- has after the other needs none of them.
local shared = false
local function several()
  if shared then
    return shared
  end
-- include keep.lua
  local holders, ends = lock .. ':h', lock .. ':e'
  local checked, changed, longest = false, false, 0
  shared = {holders = holders, ends = ends, keep = keep}

  -- Wrong types must show before the first write of a verb that may let somebody join.
  function shared.check()
    if not checked then
      call('HLEN', holders)
      call('ZCARD', ends)
      checked = true
    end
  end

  local function remove(claims)
    for _, words in ipairs(call('HMGET', holders, unpack(claims))) do
      used = used - (words and weigh(string.match(words, '^%d+ %d+ %d+ %d+ (%S+)')) or 0)
    end
    call('HDEL', holders, unpack(claims))
    call('ZREM', ends, unpack(claims))
    changed = true
  end

  -- Also if somebody has deleted what is in them by hand: the sum in the text is then wrong.
  local function free_if_empty()
    if call('ZCARD', ends) == 0 then
      used, of = 0, 1
    end
  end

  -- Ends the leases that have run out.
  function shared.expire()
    call('ZCARD', queue)
    call('HLEN', waiters)
    shared.check()
    local dead
    repeat
      dead = call('ZRANGEBYSCORE', ends, '-inf', stamp, 'LIMIT', 0, 1000)
      if #dead > 0 then
        remove(dead)
      end
    until #dead == 0
    free_if_empty()
  end

  function shared.join(claim, ttl, terms, since)
    grants = grants + 1
    call('HSET', holders, claim, grants .. ' ' .. number() .. ' ' .. since .. ' ' .. terms)
    call('ZADD', ends, now + ttl * 1000, claim)
    changed, longest = true, math.max(longest, ttl)
  end

  -- Makes room for a second holder beside the one that is in the text.
  function shared.spread()
    local terms = string.match(row, '^%S+ %d+ %d+ (.*)$')
    call('DEL', holders, ends)
    grants = 0
    shared.join(holder, lease, terms, number())
    call('ZADD', ends, now + left * 1000, holder)
    state, holder, broken = 's', false, false
  end

  -- Takes back what the claim holds; false, if it holds nothing.
  function shared.leave(claim)
    if call('HEXISTS', holders, claim) == 0 then
      return false
    end
    remove({claim})
    free_if_empty()
    return true
  end

  -- Writes what has changed.
  function shared.settle()
    if not changed or used == 0 then
      return
    end
    local seconds, micros = clock()
    call('SET', lock, 's' .. seconds .. ' ' .. micros .. ' ' .. of .. ' ' .. used .. ' ' .. grants,
      'KEEPTTL')
    if longest > 0 then
      keep(lock, longest)
    end
    changed, longest = false, 0
  end

  return shared
end

if state == 's' then
  several().expire()
end
