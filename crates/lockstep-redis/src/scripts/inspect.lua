-- Looks at one lock and changes nothing. KEYS: the lock. ARGV: 1 for particulars.
-- Answers {what row.lua says of the holder or nothing, how long its key will live in ms, how many
-- wait whose leases live, and for each of those its claim and what the waiters' hash says}; nothing
-- at all if nobody holds or waits.
local call = redis.call
local lock, queue, waiters = KEYS[1], KEYS[1] .. ':q', KEYS[1] .. ':w'

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local holder, left = call('GET', lock), call('PTTL', lock)
if holder then
  local lease = string.match(holder, '^[hwb]%x+ %d+ %d+ (%d+) %S+ %x+ ')
  if not lease then
    return redis.error_reply('FOREIGN ' .. lock)
  end
  holder = left >= tonumber(lease) and holder
end

local waiting, particulars = 0, {}
local claims = call('ZRANGE', queue, 0, -1)
for first = 1, #claims, 1000 do
  local last = math.min(first + 999, #claims)
  local found = call('HMGET', waiters, unpack(claims, first, last))
  for i, waiter in ipairs(found) do
    local asked, ttl = string.match(waiter or '', '^(%d+) (%d+) ')
    if asked and asked + ttl * 1000 > now then
      waiting = waiting + 1
      if ARGV[1] == '1' then
        table.insert(particulars, claims[first + i - 1])
        table.insert(particulars, waiter)
      end
    end
  end
end

if not holder and waiting == 0 then
  return false
end
return {holder, left, waiting, particulars}
