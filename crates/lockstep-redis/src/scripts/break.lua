-- Takes the lock away from whoever holds it. KEYS: the lock. ARGV: nobody (empty), reason, 1 to
-- pass it on now. Answers 1 if somebody held it, else 0.
local call, lock = redis.call, KEYS[1]
local row, time = call('GET', lock), call('TIME')
-- include row.lua
local reason, at_once = ARGV[2], ARGV[3] == '1'
if healed then
  -- Nobody held it when the operator spoke; whoever has it now is innocent.
  return 0
end
if not at_once then
  local words = string.match(row, '^.([^\n]*)')
  call('SET', lock, 'b' .. words .. '\n' .. reason, 'KEEPTTL')
  return 1
end

call('ZCARD', queue) -- wrong types must show before anybody is told
call('HLEN', waiters)
tell(told_at, 'lost ' .. holder .. ' ' .. reason)
holder = false
pass_on()
if not holder then
  call('DEL', lock)
end
return 1
