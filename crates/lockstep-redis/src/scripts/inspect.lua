-- Looks at one lock and changes nothing. KEYS: the lock. ARGV: 1 for particulars.
-- Answers {what row.lua says of who holds it alone, or nothing; what is left of its lease in ms; for
-- each of several that hold it its claim, what shared.lua says of it and what is left of its lease in
-- microseconds; how many wait whose leases live; and for each of those its claim and what the waiters'
-- hash says}; nothing at all if nobody holds or waits.
local call = redis.call
local lock, queue, waiters = KEYS[1], KEYS[1] .. ':q', KEYS[1] .. ':w'

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local row, left = call('GET', lock), call('PTTL', lock)
local sharers = {}
if row and string.match(row, '^s%d+ %d+ %d+ %d+ %d+$') then
  row = false
  local ends = call('ZRANGE', lock .. ':e', 0, -1, 'WITHSCORES')
  for i = 1, #ends, 2 do
    local words = call('HGET', lock .. ':h', ends[i])
    if words and tonumber(ends[i + 1]) > now then
      table.insert(sharers, ends[i])
      table.insert(sharers, words)
      table.insert(sharers, ends[i + 1] - now)
    end
  end
elseif row then
  local lease, share = string.match(row, '^[awb]%x+ %d+ %d+ (%d+) (%S+) %S+ %x+ ')
  local known = share == 'exclusive' or share == 'read' or string.match(share or '', '^%d+/%d+$')
  if not known then
    return redis.error_reply('FOREIGN ' .. lock)
  end
  if string.sub(row, 1, 1) ~= 'a' then
    left = left - lease
  end
  row = left >= 0 and row
end

local waiting, particulars = 0, {}
local claims = call('ZRANGE', queue, 0, -1)
for first = 1, #claims, 1000 do
  local last = math.min(first + 999, #claims)
  local found = call('HMGET', waiters, unpack(claims, first, last))
  for i, waiter in ipairs(found) do
    local asked, ttl = string.match(waiter or '', '^(%d+) %d+ (%d+) ')
    if asked and asked + ttl * 1000 > now then
      waiting = waiting + 1
      if ARGV[1] == '1' then
        table.insert(particulars, claims[first + i - 1])
        table.insert(particulars, waiter)
      end
    end
  end
end

if not row and #sharers == 0 and waiting == 0 then
  return false
end
return {row, left, sharers, waiting, particulars}
