-- Gives back a hold or a place in the queue. KEYS: the lock. ARGV: claim, ttl in ms.
-- Answers 1 if there was one, else 0.
local call, lock, me = redis.call, KEYS[1], ARGV[1]
local row = call('GET', lock)

-- The short ways: it is mine alone, and my lease lives.
if row and string.find(row, me, 2, true) == 2 then
  local state = string.sub(row, 1, 1)
  if state == 'a' then -- nobody waits
    call('DEL', lock)
    return 1
  end
  -- Who waits first lives, and wants all of it: what heal.lua comes to then, without all that it needs
  -- for readers and the dead. Behind a clock that was set back a token must be made up, which is not for
  -- here either.
  local queue, waiters = lock .. ':q', lock .. ':w'
  local claim = state == 'w' and call('PTTL', lock) >= tonumber(ARGV[2])
    and call('ZRANGE', queue, '0', '0')[1]
  local waiter = claim and call('HGET', waiters, claim)
  local asked, terms, ttl, wanted, inbox =
    string.match(waiter or '', '^(%d+) %d+ ()(%d+) (%S+) (%S+) ')
  if wanted == 'exclusive' then
    local time = call('TIME')
    local stamp = time[1] .. string.sub('00000' .. time[2], -6)
    local now = tonumber(stamp)
    local seconds, micros = string.match(row, '^ (%d+) (%d+) ', 34)
    if asked + ttl * 1000 > now and seconds * 1000000 + micros < now then
      call('SET', lock, 'w' .. claim .. ' ' .. time[1] .. ' ' .. time[2] .. ' '
        .. string.sub(waiter, terms), 'PX', ttl * 2)
      call('ZREM', queue, claim)
      call('HDEL', waiters, claim)
      if inbox ~= '-' then
        redis.pcall('PUBLISH', inbox, 'granted ' .. claim .. ' ' .. stamp)
      end
      return 1
    end
  end
end

local time = call('TIME')
-- include row.lua
-- include shared.lua
-- include heal.lua
local held = holder == me
if held then
  holder, broken, used, of = false, false, 0, 1
elseif state == 's' then
  held = shared.leave(me)
end
if held then
  heal()
  free_if_unused()
  return 1
end

-- A wrong type must show before the first write. Somebody behind the place may fit where it did not.
local asked, ttl = string.match(call('HGET', waiters, me) or '', '^(%d+) %d+ (%d+) ')
if used < of then
  several().check()
end
local gone = call('ZREM', queue, me)
if gone == 1 then
  call('HDEL', waiters, me)
end
heal()
-- A place whose lease has run out is not there any more, forgotten or not.
return gone == 1 and asked and asked + ttl * 1000 > now and 1 or 0
