-- Takes the key if it is free, or keeps it if it has this value already.
-- KEYS: the key. ARGV: the value, its ttl in ms.
-- Answers 1: it has the value, for one ttl; {ms, the start of its value}: somebody else's, for so long
-- (-1: for ever); a text: it had the value, and was broken with these words.
local call = redis.call
local key, mine, ttl = KEYS[1], ARGV[1], ARGV[2]
if call('SET', key, mine, 'NX', 'PX', ttl) then return 1 end
local found = redis.pcall('GET', key)
if type(found) == 'table' then return redis.error_reply('FOREIGN ' .. call('TYPE', key).ok) end
if found == mine then
  call('PEXPIRE', key, ttl)
  return 1
end
local broken = 'broken:' .. mine .. ':'
if string.sub(found, 1, #broken) == broken then return string.sub(found, #broken + 1) end
return {call('PTTL', key), string.sub(found, 1, 64)}
