-- Gives back a hold or a place in the queue. KEYS: the lock. ARGV: claim.
-- Answers 1 if there was one, else 0.
local call, lock, me = redis.call, KEYS[1], ARGV[1]

-- The short way: it is mine, my lease lives (the key is to outlive it by one ttl), and nobody waits.
local seen = call('HMGET', lock, 'claim', 'ttl')
if seen[1] == me and call('PTTL', lock) > (tonumber(seen[2]) or 0)
    and call('EXISTS', lock .. ':q') == 0 then
  call('HDEL', lock, 'claim', 'owner', 'label', 'since', 'until', 'ttl', 'inbox', 'broken')
  return 1
end

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
-- include row.lua
if holder == me then
  holder = false
  pass_on(me)
  if not holder then
    vacate()
  end
  return 1
end

call('HEXISTS', waiters, me) -- a wrong type must show before the first write
if call('ZREM', queue, me) == 0 then
  return 0
end
call('HDEL', waiters, me)
return 1
