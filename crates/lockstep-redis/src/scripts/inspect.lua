-- Looks at one lock and changes nothing. KEYS: the lock. ARGV: 1 for particulars.
-- Answers {now, the holder's fields or nothing, how many wait whose leases live, and for each of
-- those its claim and what the waiters' hash says}; nothing at all if nobody holds or waits.
local call = redis.call
local lock, queue, waiters = KEYS[1], KEYS[1] .. ':q', KEYS[1] .. ':w'

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local row = call('HMGET', lock, 'claim', 'owner', 'label', 'token', 'since', 'until', 'broken')
if not tonumber(row[4]) and call('EXISTS', lock) == 1 then
  return redis.error_reply('FOREIGN ' .. lock)
end
local holder = row[1] and (tonumber(row[6]) or 0) > now and row

local waiting, particulars = 0, {}
local claims = call('ZRANGE', queue, 0, -1)
for first = 1, #claims, 1000 do
  local last = math.min(first + 999, #claims)
  local found = call('HMGET', waiters, unpack(claims, first, last))
  for i, waiter in ipairs(found) do
    if waiter and (tonumber(string.match(waiter, '^%d+')) or 0) > now then
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
return {now, holder, waiting, particulars}
