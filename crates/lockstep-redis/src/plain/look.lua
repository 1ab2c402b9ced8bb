-- Looks at the key. KEYS: the key. ARGV: how much of the value is wanted at most, in bytes.
-- Answers {the value, how long it will live in ms (-1: for ever)}, or nothing.
local found = redis.pcall('GET', KEYS[1])
if not found then return false end
if type(found) == 'table' then
  return redis.error_reply('FOREIGN ' .. redis.call('TYPE', KEYS[1]).ok)
end
return {string.sub(found, 1, tonumber(ARGV[1])), redis.call('PTTL', KEYS[1])}
