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
if holder == me then
  holder = false
  pass_on(me)
  if not holder then
    call('DEL', lock)
  end
  return 1
end

call('HEXISTS', waiters, me) -- a wrong type must show before the first write
if call('ZREM', queue, me) == 0 then
  return 0
end
call('HDEL', waiters, me)
return 1
