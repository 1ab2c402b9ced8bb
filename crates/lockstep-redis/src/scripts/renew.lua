-- Extends holds. KEYS: their locks. ARGV: claim and ttl in ms of each, in the same order.
-- Answers for each 1 if extended, 0 if lost, the operator's reason if broken.
local answers = {}
for i, lock in ipairs(KEYS) do
  local claim, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  -- A key that somebody has put something else into is a lost hold, and no reason to fail the
  -- other renewals of the batch.
  local row = redis.pcall('GET', lock)
  if type(row) ~= 'string' or string.sub(row, 2, 33) ~= claim or redis.call('PTTL', lock) < ttl then
    answers[i] = 0
  elseif string.sub(row, 1, 1) == 'b' then
    answers[i] = string.match(row, '\n(.*)$')
  else
    redis.call('PEXPIRE', lock, ttl * 2)
    answers[i] = 1
  end
end
return answers
