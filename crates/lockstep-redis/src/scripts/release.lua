-- Gives back a hold or a place in the queue. KEYS: the lock. ARGV: claim, ttl in ms.
-- Answers 1 if there was one, else 0.
local call, lock, me = redis.call, KEYS[1], ARGV[1]
local row = call('GET', lock)

-- The short way: it is mine, nobody waits, and my lease lives: the key is to outlive it by one ttl.
if row and string.sub(row, 1, 33) == 'h' .. me and call('PTTL', lock) >= tonumber(ARGV[2]) then
  call('DEL', lock)
  return 1
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
local asked, ttl = string.match(call('HGET', waiters, me) or '', '^(%d+) (%d+) ')
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
