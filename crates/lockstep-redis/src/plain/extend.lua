-- Gives each key that has its value a full ttl from now; brings none back.
-- KEYS: the keys. ARGV: for each the value, its ttl in ms.
-- Answers for each 1: extended; 0: it is not there, or somebody else's; a text: broken with these words.
local answers = {}
for n, key in ipairs(KEYS) do
  local mine, ttl = ARGV[2 * n - 1], ARGV[2 * n]
  local found, broken = redis.pcall('GET', key), 'broken:' .. mine .. ':'
  if found == mine then
    redis.call('PEXPIRE', key, ttl)
    answers[n] = 1
  elseif type(found) == 'string' and string.sub(found, 1, #broken) == broken then
    answers[n] = string.sub(found, #broken + 1)
  else
    answers[n] = 0
  end
end
return answers
