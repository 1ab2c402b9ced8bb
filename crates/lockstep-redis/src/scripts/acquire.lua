-- Asks once. KEYS: the lock. ARGV: claim, owner, label, ttl in ms, inbox or -, "try" not to wait.
-- Answers a number, the token, if granted; nothing, if busy; {places ahead, what is left of the
-- holder's lease in microseconds, the holder's token}, if queued; a text, the operator's reason,
-- if broken.
local call, lock, ttl = redis.call, KEYS[1], ARGV[4]
local seen = call('HMGET', lock, 'claim', 'token')
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local last = tonumber(seen[2])

-- The short way: a lock that was released has a token and no claim, and then nobody waits, because
-- the release would have passed it on; a lock without token must have neither hash nor queue.
if not seen[1] and (last or call('EXISTS', lock, lock .. ':q') == 0) then
  local stamp = time[1] .. string.sub('00000' .. time[2], -6)
  local token = now
  if last and last >= now then
    token = last + 1
  end
  call('HSET', lock, 'claim', ARGV[1], 'owner', ARGV[2], 'label', ARGV[3],
    'token', token == now and stamp or token, 'since', string.sub(stamp, 1, -4),
    'until', now + ttl * 1000, 'ttl', ttl, 'inbox', ARGV[5])
  call('PEXPIRE', lock, ttl * 2)
  return token
end

-- include row.lua
local me, owner, label, inbox = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
if not holder then
  grant(me, owner, label, ttl, inbox)
  return token
end

if holder == me then
  if broken then
    return broken
  end
  call('HSET', lock, 'until', now + ttl * 1000, 'ttl', ttl)
  if inbox ~= '-' then
    call('HSET', lock, 'inbox', inbox)
  end
  call('PEXPIRE', lock, ttl * 2)
  return token
end

if ARGV[6] == 'try' then
  return false
end

local place = call('ZRANK', queue, me)
local mine = call('HGET', waiters, me)
local since = math.floor(now / 1000)
if place and lives(mine) then
  local kept
  since, kept = string.match(mine, '^%d+ %d+ (%d+) (%S+)')
  if inbox == '-' then
    inbox = kept
  end
else
  -- A place whose lease ran out is lost: the claim goes to the end.
  local tail = call('ZRANGE', queue, -1, -1, 'WITHSCORES')
  call('ZADD', queue, math.max((tonumber(tail[2]) or 0) + 1, now), me)
  place = call('ZCARD', queue) - 1
end
call('HSET', waiters, me,
  table.concat({digits(now + ttl * 1000), ttl, digits(since), inbox, owner, label}, ' '))

-- The queue lives as long as its longest lease and one ttl more.
local keep = math.max(call('PTTL', queue), ttl * 2)
call('PEXPIRE', queue, keep)
call('PEXPIRE', waiters, keep)

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
return {ahead, till - now, token}
