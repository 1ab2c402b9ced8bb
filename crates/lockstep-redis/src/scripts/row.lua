-- What acquire, release and break share once the short way is not open: who holds the lock now,
-- and the steps that change that. Included where those scripts say so; they have set `call`, `lock`
-- and `now`.
--
-- <lock> is a hash: the holder and the last token. <lock>:q is a sorted set: claims by arrival.
-- <lock>:w is a hash: claim -> "until ttl since inbox owner label". The last two are not among KEYS
-- because each key that is declared costs a free lock time; the hash tag keeps them together.
--
-- Whatever may be of a wrong type is read before the first write, so that a key which is not
-- ours changes nothing.
local queue, waiters = lock .. ':q', lock .. ':w'
local row = call('HMGET', lock, 'claim', 'token', 'until', 'broken')
local holder, token, till, broken = row[1], tonumber(row[2]), tonumber(row[3]), row[4]
if (not token or (holder and not till)) and call('EXISTS', lock) == 1 then
  return redis.error_reply('FOREIGN ' .. lock)
end
if holder and till <= now then
  holder = false
end

-- Times in microseconds are written like this into texts, where Lua would cut them to 14 digits;
-- as arguments of commands Redis writes them in full.
local function digits(number)
  return string.format('%.0f', number)
end

local function lives(waiter)
  return waiter and (tonumber(string.match(waiter, '^%d+')) or 0) > now
end

-- A failed PUBLISH must not stop a script that has written already; a signal is only a hint.
local function tell(inbox, words)
  if inbox ~= '-' then
    redis.pcall('PUBLISH', inbox, words)
  end
end

local function grant(claim, owner, label, ttl, inbox)
  token = math.max((token or 0) + 1, now)
  till = now + ttl * 1000
  call('HSET', lock, 'claim', claim, 'owner', owner, 'label', label, 'token', token,
    'since', math.floor(now / 1000), 'until', till, 'ttl', ttl, 'inbox', inbox)
  if broken then
    call('HDEL', lock, 'broken')
  end
  -- The hash outlives the lease by one ttl: it keeps the token from going back.
  call('PEXPIRE', lock, ttl * 2)
  holder, broken = claim, false
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
      local ttl, inbox, owner, label = string.match(chosen, '^%d+ (%d+) %d+ (%S+) (%x+) (.*)$')
      grant(gone[#gone], owner, label, ttl, inbox)
      if holder ~= asker then
        tell(inbox, 'granted ' .. holder .. ' ' .. digits(token))
      end
      return
    end
    -- The head alone is the usual case; a queue of the dead is cleared in larger steps.
    last = 99
  end
end

-- Leaves the token behind for as long as the key was to live anyway, which is one ttl at least.
local function vacate()
  call('HDEL', lock, 'claim', 'owner', 'label', 'since', 'until', 'ttl', 'inbox', 'broken')
end

-- Every verb heals first: a lease that ran out has ended, and who is next has the lock.
local healed = not holder
if healed then
  pass_on(ARGV[1])
end
