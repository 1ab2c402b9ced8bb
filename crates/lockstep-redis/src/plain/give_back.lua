-- Deletes the key if it has this value, broken or not. KEYS: the key. ARGV: the value.
-- Answers 1 if it did, else 0.
local found, broken = redis.pcall('GET', KEYS[1]), 'broken:' .. ARGV[1] .. ':'
if type(found) ~= 'string' then return 0 end
if found == ARGV[1] or string.sub(found, 1, #broken) == broken then
  return redis.call('DEL', KEYS[1])
end
return 0
