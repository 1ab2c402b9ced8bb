-- How a lock is granted, to who asks and to who waits.

-- A failed PUBLISH must not stop a script that has written already; a signal is only a hint.
local function tell(inbox, words)
  if inbox ~= '-' then
    redis.pcall('PUBLISH', inbox, words)
  end
end

-- Writes who holds the lock alone, for a lease from now on.
local function write(how, ttl, terms)
  local seconds, micros = clock()
  row = how .. holder .. ' ' .. seconds .. ' ' .. micros .. ' ' .. terms
  call('SET', lock, row, 'PX', how == 'a' and ttl or ttl * 2)
end

-- Readers that hold together have one token: it says after which writer they read. Everybody else
-- gets one of its own.
local function grant(how, claim, ttl, wanted, terms)
  local alone = used == 0
  if not alone and state ~= 's' then
    several().spread()
  end
  if alone or wanted ~= 'read' then
    token = math.max(token + 1, now)
  end
  local weight, total = weigh(wanted)
  used, of = used + weight, total
  if not alone then
    shared.join(claim, ttl, terms, stamp)
    return
  end
  if state == 's' then
    call('DEL', shared.holders, shared.ends)
  end
  state, holder, share, lease, left, broken = how, claim, wanted, ttl, ttl + 1, false
  write(how, ttl, terms)
end

-- Grants what is free to the first waiters whose leases live, as many as fit, and tells them, except
-- the one who asks. The dead before them are forgotten. Answers whether it saw that nobody waits.
local function heal(asker)
  local last, nobody, stop = '0', false, false
  while used < of and not stop do
    local claims = call('ZRANGE', queue, '0', last)
    if #claims == 0 then
      nobody = true
      break
    end
    local found, gone = call('HMGET', waiters, unpack(claims)), {}
    for i, claim in ipairs(claims) do
      local waiter = found[i] or ''
      local asked, start, ttl, wanted, inbox = string.match(waiter, '^(%d+) %d+ ()(%d+) (%S+) (%S+) ')
      if asked and asked + ttl * 1000 > now then
        local weight, total = weigh(wanted)
        if used + weight > total then
          stop = true
          break
        end
        if wanted ~= 'exclusive' then
          several().check()
        end
        grant('w', claim, ttl, wanted, string.sub(waiter, start))
        if claim ~= asker then
          tell(inbox, 'granted ' .. claim .. ' ' .. number())
        end
      end
      gone[i] = claim
    end
    if #gone > 0 then
      if used < of then
        several().check()
      end
      call('ZREM', queue, unpack(gone))
      call('HDEL', waiters, unpack(gone))
    end
    -- The head alone is the usual case; many readers, or a queue of the dead, go in larger steps.
    last = '99'
  end
  if state == 's' then
    shared.settle()
  end
  return nobody
end

-- What was given back, and nobody took: a free lock is no key.
local function free_if_unused()
  if used == 0 and state == 's' then
    call('DEL', lock, shared.holders, shared.ends)
  elseif used == 0 and state then
    call('DEL', lock)
  end
end
