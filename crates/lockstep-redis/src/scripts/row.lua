-- What acquire, release and break share once the short way is not open: who holds the lock now,
-- and the steps that change that. Included where those scripts say so; they have set `call`, `lock`,
-- `time`, and `row`, what the lock's key says.
--
-- <lock> is a text: "<state><claim> <seconds> <microseconds> <ttl> <inbox> <owner> <label>". The
-- state is h: held, w: held and perhaps waited for, b: broken, and then a line follows with the
-- reason. The two numbers are the server's time of the grant, together the token. The key is to live
-- for two ttls from the grant or the last renewal; the first of them is the lease.
--
-- <lock>:q is a sorted set: claims by arrival. <lock>:w is a hash: claim -> "<asked> <ttl> <since>
-- <inbox> <owner> <label>"; the lease of a place is one ttl from when it last asked. These two are
-- not among KEYS because each key that is declared costs a free lock time; the hash tag keeps them
-- together.
--
-- Whatever may be of a wrong type is read before the first write, so that a key which is not
-- ours changes nothing. To write a number as a text is slow in Lua, and wrong beyond 14 digits, so
-- the clock's own texts are used where that can be.
local queue, waiters = lock .. ':q', lock .. ':w'
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local state, holder, token, lease, left, broken, told_at
if row then
  local seconds, micros
  state, holder, seconds, micros, lease, told_at =
    string.match(row, '^([hwb])(%x+) (%d+) (%d+) (%d+) (%S+) %x+ ')
  if not state then
    return redis.error_reply('FOREIGN ' .. lock)
  end
  token = seconds * 1000000 + micros
  broken = state == 'b' and string.match(row, '\n(.*)$')
  -- Redis counts in whole milliseconds; one more makes the lease no shorter than was promised.
  left = call('PTTL', lock) - lease + 1
  if left <= 0 then
    holder, broken = false, false
  end
end

local function lives(waiter)
  if not waiter then
    return false
  end
  local asked, ttl = string.match(waiter, '^(%d+) (%d+) ')
  return asked and asked + ttl * 1000 > now
end

-- A failed PUBLISH must not stop a script that has written already; a signal is only a hint.
local function tell(inbox, words)
  if inbox ~= '-' then
    redis.pcall('PUBLISH', inbox, words)
  end
end

-- Writes who holds the lock, for a lease from now on.
local function write(how, ttl, inbox, who)
  local seconds, micros = time[1], time[2]
  if token ~= now then
    seconds, micros = math.floor(token / 1000000), token % 1000000
  end
  call('SET', lock, how .. holder .. ' ' .. seconds .. ' ' .. micros .. ' ' .. ttl .. ' ' .. inbox
    .. ' ' .. who, 'PX', ttl * 2)
end

local function grant(how, claim, ttl, inbox, who)
  holder, token, broken = claim, math.max((token or 0) + 1, now), false
  state, lease, left, told_at = how, ttl, ttl + 1, inbox
  write(how, ttl, inbox, who)
end

-- Grants a lock that nobody holds to the first waiter whose lease lives, and tells it, unless it
-- is the one who asks. Those before it are dead and are forgotten.
local function pass_on(asker)
  local last = 0
  while true do
    local claims = call('ZRANGE', queue, 0, last)
    if #claims == 0 then
      return
    end
    local found = call('HMGET', waiters, unpack(claims))
    local gone, chosen = {}, false
    for i, claim in ipairs(claims) do
      gone[i] = claim
      chosen = lives(found[i]) and found[i]
      if chosen then
        break
      end
    end
    call('ZREM', queue, unpack(gone))
    call('HDEL', waiters, unpack(gone))
    if chosen then
      local ttl, inbox, who = string.match(chosen, '^%d+ (%d+) %d+ (%S+) (.*)$')
      grant('w', gone[#gone], ttl, inbox, who)
      if holder ~= asker then
        local text = token == now and stamp or string.format('%.0f', token)
        tell(inbox, 'granted ' .. holder .. ' ' .. text)
      end
      return
    end
    -- The head alone is the usual case; a queue of the dead is cleared in larger steps.
    last = 99
  end
end

-- Every verb heals first: a lease that ran out has ended, and who is next has the lock.
local healed = not holder
if healed then
  pass_on(ARGV[1])
end
