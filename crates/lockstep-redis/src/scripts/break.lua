-- Takes the lock away from all who hold it. KEYS: the lock. ARGV: reason, 1 to pass it on now.
-- Answers 1 if somebody held it, else 0.
local call, lock = redis.call, KEYS[1]
local row, time = call('GET', lock), call('TIME')
-- include row.lua
-- include shared.lua
-- include heal.lua
local reason, at_once = ARGV[1], ARGV[2] == '1'
call('ZCARD', queue) -- wrong types must show before the first write, and before anybody is told
call('HLEN', waiters)
several().check()
if used == 0 then
  -- Nobody held it when the operator spoke; whoever has it then is innocent.
  heal()
  return 0
end

-- Each with what is known of it, in the order of their grants.
local all = {}
if state == 's' then
  local found = call('HGETALL', shared.holders)
  for i = 1, #found, 2 do
    local claim, words = found[i], found[i + 1]
    local order, inbox = string.match(words, '^(%d+) %d+ %d+ %d+ %S+ (%S+) ')
    table.insert(all, {claim = claim, words = words, inbox = inbox, order = tonumber(order)})
  end
  table.sort(all, function(one, other) return one.order < other.order end)
else
  all[1] = {claim = holder, inbox = string.match(row, '^%S+ %d+ %d+ %d+ %S+ (%S+)')}
end

if at_once then
  for _, lost in ipairs(all) do
    tell(lost.inbox, 'lost ' .. lost.claim .. ' ' .. reason)
  end
  holder, broken, used, of = false, false, 0, 1
elseif state == 's' then
  for _, lost in ipairs(all) do
    call('HSET', shared.holders, lost.claim, string.match(lost.words, '^[^\n]*') .. '\n' .. reason)
  end
else
  row = 'b' .. string.match(row, '^.([^\n]*)') .. '\n' .. reason
  call('SET', lock, row, 'KEEPTTL')
  if state == 'a' then
    outlive()
  end
  state, broken = 'b', reason
end
heal()
free_if_unused()
return 1
