-- What the verbs share once the short way is not open: who holds the lock now. Included where
-- scripts say so; they have set `call`, `lock`, `time`, and `row`, what the lock's key says.
--
-- The terms of a claim, wherever it stands, are "<ttl> <share> <inbox> <owner> <label>".
--
-- <lock> is a text. If one holds it: "<state><claim> <seconds> <microseconds> <terms>". The state is
-- a: held, and nobody waits; w: held and perhaps waited for; b: broken, and then a line follows with the
-- reason. The two numbers are the server's time of the grant, together the token. As long as nobody
-- waits, the key lives as long as the lease, one ttl from the grant or the last renewal. Else it is to
-- live for two, the first of which is the lease: it has the token that the next one must exceed. If
-- several hold it: see shared.lua.
--
-- <lock>:q is a sorted set: claims by arrival. <lock>:w is a hash: claim -> "<asked> <since> <terms>";
-- the lease of a place is one ttl from when it last asked. These two are not among KEYS because each
-- key that is declared costs a free lock time; the hash tag keeps them together.
--
-- Whatever may be of a wrong type is read before the first write, so that a key which is not
-- ours changes nothing. To write a number as a text is slow, and wrong beyond 14 digits, so what is
-- a text already stays one: the clock's, and a rank that is always the same.
local queue, waiters = lock .. ':q', lock .. ':w'
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

-- What a share takes, and of what total; nothing, if it is no share.
local WHOLE = 2147483647
local function weigh(share)
  if share == 'exclusive' then
    return WHOLE, WHOLE
  elseif share == 'read' then
    return 1, WHOLE
  end
  local count, of = string.match(share, '^(%d+)/(%d+)$')
  return tonumber(count), tonumber(of)
end

-- A handle whose holds are to end with its connection has an inbox of a name of its own.
local function is_bound(words)
  return string.match(words, '^%S+ %d+ %d+ %d+ %S+ (%S+:inb:%x+) ')
end
local function is_gone(inbox)
  return call('PUBSUB', 'NUMSUB', inbox)[2] == 0
end

-- `used` of the total `of` is taken; a lock that nobody holds has any total, and room.
local state, token, used, of = false, 0, 0, 1
local holder, share, lease, left, broken -- of the one that holds it alone
local bound -- its inbox, if its hold is to end with the connection that listens there
local grants -- how many there were since several hold it
if row then
  local seconds, micros
  state = string.sub(row, 1, 1)
  if state == 's' then
    seconds, micros, of, used, grants = string.match(row, '^s(%d+) (%d+) (%d+) (%d+) (%d+)$')
    of, used, grants = tonumber(of), tonumber(used), tonumber(grants)
  else
    holder, seconds, micros, lease, share =
      string.match(row, '^[awb](%x+) (%d+) (%d+) (%d+) (%S+) ')
    used, of = weigh(share or '')
  end
  if not of then
    return redis.error_reply('FOREIGN ' .. lock)
  end
  token = seconds * 1000000 + micros
  if holder then
    broken = state == 'b' and string.match(row, '\n(.*)$')
    -- Redis counts in whole milliseconds; one more makes the lease no shorter than was promised.
    left = call('PTTL', lock) + 1 - (state == 'a' and 0 or lease)
    bound = string.find(row, ':inb:', 1, true) and is_bound(row)
    if left <= 0 or bound and holder ~= ARGV[1] and is_gone(bound) then
      holder, broken, used, of = false, false, 0, 1
    end
  end
end

-- Lets the key outlive the lease, which is left as it is; for a lock that nobody waited for.
local function outlive()
  call('PEXPIRE', lock, left - 1 + lease)
end

-- The last token as the two texts of a clock, and as one number.
local function clock()
  if token == now then
    return time[1], time[2]
  end
  return math.floor(token / 1000000), token % 1000000
end
local function number()
  return token == now and stamp or string.format('%.0f', token)
end
