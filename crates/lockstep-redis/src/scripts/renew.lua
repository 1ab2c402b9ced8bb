-- Extends holds. KEYS: their locks. ARGV: claim and ttl in ms of each, in the same order.
-- Answers for each 1 if extended, 0 if lost, the operator's reason if broken.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local answers = {}
for i, lock in ipairs(KEYS) do
  local claim, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  -- A key that somebody has put something else into is a lost hold, and no reason to fail the
  -- other renewals of the batch.
  local row = redis.pcall('HMGET', lock, 'claim', 'until', 'broken')
  if row.err or row[1] ~= claim or (tonumber(row[2]) or 0) <= now then
    answers[i] = 0
  elseif row[3] then
    answers[i] = row[3]
  else
    redis.call('HSET', lock, 'until', now + ttl * 1000, 'ttl', ttl)
    redis.call('PEXPIRE', lock, ttl * 2)
    answers[i] = 1
  end
end
return answers
