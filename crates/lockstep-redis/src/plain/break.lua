-- Takes the key away from whoever has it. KEYS: the key. ARGV: why, 1 for at once.
-- At once it is deleted. Otherwise its value is replaced, which neither its holder's renewals nor its
-- holder's release will find again, and it ends with its ttl.
-- Answers 1 if anybody had it, else 0; an error if it would never end.
local call, key = redis.call, KEYS[1]
local found = redis.pcall('GET', key)
if not found then return 0 end
if type(found) == 'table' then return redis.error_reply('FOREIGN ' .. call('TYPE', key).ok) end
if ARGV[2] == '1' then return call('DEL', key) end
if call('PTTL', key) == -1 then return redis.error_reply('IMMORTAL it has no ttl') end
local whose = string.match(found, '^broken:([^:]*):') or found
call('SET', key, 'broken:' .. whose .. ':' .. ARGV[1], 'XX', 'KEEPTTL')
return 1
