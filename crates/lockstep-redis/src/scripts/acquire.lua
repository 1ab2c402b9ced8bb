-- Asks once. KEYS: the lock. ARGV: claim, ttl in ms, twice the ttl, inbox or -, owner and label,
-- "try" not to wait.
-- Answers the token, if granted: a number, or {seconds, microseconds}; nothing, if busy; {places
-- ahead, what is left of the holder's lease in microseconds, the holder's token}, if queued; a text,
-- the operator's reason, if broken.
local call, lock, ttl = redis.call, KEYS[1], ARGV[2]
local time = call('TIME')

-- The short way: a lock that nobody holds has no key. Whoever waits keeps it from going that far,
-- by asking when the holder's lease ends. Two grants have a release between them, or two ttls, so
-- the clock has moved on and the token with it.
if call('SET', lock, 'h' .. ARGV[1] .. ' ' .. time[1] .. ' ' .. time[2] .. ' ' .. ttl .. ' '
    .. ARGV[4] .. ' ' .. ARGV[5], 'NX', 'PX', ARGV[3]) then
  return time
end

local row = call('GET', lock)
-- include row.lua
local me, inbox, who = ARGV[1], ARGV[4], ARGV[5]
if not holder then
  grant('h', me, ttl, inbox, who)
  return token
end

if holder == me then
  if broken then
    return broken
  end
  write(state, ttl, inbox ~= '-' and inbox or told_at, who)
  return token
end

if ARGV[6] == 'try' then
  return false
end

local place = call('ZRANK', queue, me)
local mine = call('HGET', waiters, me)
local since = stamp
if place and lives(mine) then
  local kept
  since, kept = string.match(mine, '^%d+ %d+ (%d+) (%S+)')
  if inbox == '-' then
    inbox = kept
  end
else
  -- A place whose lease ran out is lost: the claim goes to the end, wherever the clock is.
  local tail = tonumber(call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]) or 0
  call('ZADD', queue, tail < now and stamp or tail + 1, me)
  place = call('ZCARD', queue) - 1
end
call('HSET', waiters, me, stamp .. ' ' .. ttl .. ' ' .. since .. ' ' .. inbox .. ' ' .. who)
if state == 'h' then
  call('SETRANGE', lock, 0, 'w')
end

-- Queue and waiters live as long as the longest lease in them and half a ttl more.
local enough = ttl * 1.5
if call('PTTL', queue) < enough or call('PTTL', waiters) < enough then
  call('PEXPIRE', queue, ARGV[3])
  call('PEXPIRE', waiters, ARGV[3])
end

-- The dead are left out of the count near the head, where it matters; to look at everybody would
-- make a long queue expensive for all.
local looked = math.min(place, 16)
local ahead = math.min(place - looked, 84)
if looked > 0 then
  local before = call('ZRANGE', queue, 0, looked - 1)
  for _, waiter in ipairs(call('HMGET', waiters, unpack(before))) do
    if lives(waiter) then
      ahead = ahead + 1
    end
  end
end
return {ahead, math.min(left, lease) * 1000, token}
