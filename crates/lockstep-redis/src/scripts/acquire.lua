-- Asks once. KEYS: the lock. ARGV: claim, its terms (see row.lua; the ttl in ms, - for no inbox), the
-- ttl, "try" not to wait.
-- Answers the token, if granted; nothing, if busy; {places ahead, what is left of the lease that ends
-- first in microseconds, the last token}, if queued; {the total}, if it is in use with another; a text,
-- the operator's reason, if broken.
local call, lock = redis.call, KEYS[1]
local time = call('TIME')

-- The short way: a lock that nobody holds has no key. Whoever waits keeps it from going that far,
-- by asking when the holder's lease ends. Two grants have a release between them, or a ttl, so
-- the clock has moved on and the token with it.
if call('SET', lock, 'a' .. ARGV[1] .. ' ' .. time[1] .. ' ' .. time[2] .. ' ' .. ARGV[2],
    'NX', 'PX', ARGV[3]) then
  return time[1] * 1000000 + time[2]
end

local row = call('GET', lock)
-- include row.lua
local me = ARGV[1]
local terms = ARGV[2]
local ttl, wanted, inbox, who = string.match(terms, '^(%d+) (%S+) (%S+) ()')
local weight, total = weigh(wanted)

-- Who asks again wants what it wanted, and is told where it was, unless it says where it is now.
local function keep_terms(share, known)
  if wanted ~= share or inbox == '-' and known ~= '-' then
    inbox = inbox == '-' and known or inbox
    terms = ttl .. ' ' .. share .. ' ' .. inbox .. ' ' .. string.sub(ARGV[2], who)
  end
end

-- When somebody else alone has all of it, which is the usual case, there is nothing to heal or to join.
if used < of or holder == me or state == 's' then
-- include shared.lua
-- include heal.lua
  local nobody_waits = heal(me)

  if holder == me then
    if broken then
      return broken
    end
    keep_terms(share, string.match(row, '^%S+ %d+ %d+ %d+ %S+ (%S+)'))
    write(state, ttl, terms)
    return token
  end

  local mine = state == 's' and call('HGET', shared.holders, me)
  if mine then
    local why = string.match(mine, '\n(.*)$')
    if why then
      return why
    end
    local which, own_token, has, known = string.match(mine, '^(%d+ (%d+) %d+ )%d+ (%S+) (%S+) ')
    keep_terms(has, known)
    call('HSET', shared.holders, me, which .. terms)
    call('ZADD', shared.ends, now + ttl * 1000, me)
    shared.keep(lock, ttl)
    return tonumber(own_token)
  end

  if used == 0 or nobody_waits and of == total and used + weight <= total then
    if used == 0 then
      grant('a', me, ttl, wanted, terms)
    else
      several().check()
      grant('a', me, ttl, wanted, terms)
      shared.settle()
    end
    return token
  end
end

if of ~= total then
  return {of}
end
if ARGV[4] == 'try' then
  return false
end

local function lives(waiter)
  if not waiter then
    return false
  end
  local asked, ttl = string.match(waiter, '^(%d+) %d+ (%d+) ')
  return asked and asked + ttl * 1000 > now
end

local mine, since = call('HGET', waiters, me), stamp
local place = lives(mine) and call('ZRANK', queue, me)
if place then
  local wants, known
  since, wants, known = string.match(mine, '^%d+ (%d+) %d+ (%S+) (%S+) ')
  keep_terms(wants, known)
else
  -- A place whose lease ran out is lost: the claim goes to the end, wherever the clock is.
  call('ZADD', queue, stamp, me)
  place = call('ZCARD', queue) - 1
  if place > 0 and call('ZRANGE', queue, '-1', '-1')[1] ~= me then
    call('ZADD', queue, call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2] + 1, me)
  end
end
call('HSET', waiters, me, stamp .. ' ' .. since .. ' ' .. terms)
if state == 'a' then
  call('SETRANGE', lock, '0', 'w')
  outlive()
end

-- Queue and waiters begin and end together, and live as long as the longest lease in them and half a
-- ttl more.
local enough = ttl * 1.5
if call('PTTL', waiters) < enough or place == 0 and call('PTTL', queue) < enough then
  call('PEXPIRE', queue, ttl * 2)
  call('PEXPIRE', waiters, ttl * 2)
end

-- Where an owner waits, a sorted set: locks by the end of the lease of its place. It says where to
-- look, not what is there; so it may be out of date, and somebody else's key in its place is left
-- alone. An owner that has the name of its claim waits nowhere else, and nobody needs to look.
local owner = string.sub(ARGV[2], who, who + 31)
if owner ~= me then
  local waits = string.match(lock, '^[^{]*') .. 'o:' .. owner
  local known, lasts = redis.pcall('ZSCORE', waits, lock), now + ttl * 1000
  if type(known) ~= 'table' then
    if not known or tonumber(known) < lasts then
      call('ZADD', waits, lasts, lock)
    end
    if call('PTTL', waits) < enough then
      call('ZREMRANGEBYSCORE', waits, '-inf', stamp)
      call('PEXPIRE', waits, ttl * 2)
    end
  end
end

-- It is enough that the head lives: that one looks after the lock. If it does not, the dead near it
-- are left out of the count; to look at everybody would make a long queue expensive for all.
local looked = math.min(place, 16)
if place > 0 and lives(call('HGET', waiters, call('ZRANGE', queue, '0', '0')[1])) then
  looked = 0
end
local ahead = math.min(place, 100) - looked
if looked > 0 then
  local before = call('ZRANGE', queue, '0', looked - 1)
  for _, waiter in ipairs(call('HMGET', waiters, unpack(before))) do
    if lives(waiter) then
      ahead = ahead + 1
    end
  end
end
-- Who is next looks whether those whose holds end with their connections still have them. One that
-- has not has ended, and asking once more finds that.
local glance = 500000
if state == 's' then
  local ends = lock .. ':e'
  local patience = math.huge
  if ahead == 0 then
    local all = call('HGETALL', lock .. ':h')
    for i = 1, #all, 2 do
      local inbox = is_bound(all[i + 1])
      if inbox and all[i] ~= me and is_gone(inbox) then
        call('ZADD', ends, 0, all[i])
      elseif inbox then
        patience = glance
      end
    end
  end
  local first = call('ZRANGE', ends, 0, 0, 'WITHSCORES')[2] - now
  return {ahead, math.min(first, patience), token}
end
return {ahead, math.min(left * 1000, lease * 1000, bound and glance or math.huge), token}
