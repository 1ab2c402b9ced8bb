-- Extends holds. KEYS: their locks. ARGV: claim and ttl in ms of each, in the same order.
-- Answers for each 1 if extended, 0 if lost, the operator's reason if broken.
-- include keep.lua
local answers, now = {}, nil

local function alone(lock, claim, ttl, row)
  local state = string.sub(row, 1, 1)
  if string.sub(row, 2, 33) ~= claim or state ~= 'a' and redis.call('PTTL', lock) < ttl then
    return 0
  elseif state == 'b' then
    return string.match(row, '\n(.*)$')
  end
  redis.call('PEXPIRE', lock, state == 'a' and ttl or ttl * 2)
  return 1
end

-- One of several; see shared.lua.
local function among_others(lock, claim, ttl)
  local words = redis.pcall('HGET', lock .. ':h', claim)
  local ends = redis.pcall('ZSCORE', lock .. ':e', claim)
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  if type(words) ~= 'string' or type(ends) ~= 'string' or tonumber(ends) <= now then
    return 0
  end
  local broken = string.match(words, '\n(.*)$')
  if broken then
    return broken
  end
  redis.call('ZADD', lock .. ':e', now + ttl * 1000, claim)
  keep(lock, ttl)
  return 1
end

for i, lock in ipairs(KEYS) do
  local claim, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
  -- A key that somebody has put something else into is a lost hold, and no reason to fail the
  -- other renewals of the batch.
  local row = redis.pcall('GET', lock)
  if type(row) ~= 'string' then
    answers[i] = 0
  elseif string.sub(row, 1, 1) == 's' then
    answers[i] = among_others(lock, claim, ttl)
  else
    answers[i] = alone(lock, claim, ttl, row)
  end
end
return answers
