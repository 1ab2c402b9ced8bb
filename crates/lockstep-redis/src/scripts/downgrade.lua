-- Gives back all but a reader's share. KEYS: the lock. ARGV: claim.
-- Answers 1 if there is a reader's share now, else 0.
local call, lock, me = redis.call, KEYS[1], ARGV[1]
local row, time = call('GET', lock), call('TIME')
-- include row.lua
-- include shared.lua
-- include heal.lua
local reads = of == WHOLE and state == 's' and call('HEXISTS', shared.holders, me) == 1
if of == WHOLE and holder == me then
  call('ZCARD', queue) -- wrong types must show before the first write
  call('HLEN', waiters)
  several().check()
  row = string.gsub(row, '^(%S+ %d+ %d+ %d+) %S+', '%1 read')
  call('SET', lock, row, 'KEEPTTL')
  share, used, reads = 'read', 1, true
end
heal()
return reads and 1 or 0
