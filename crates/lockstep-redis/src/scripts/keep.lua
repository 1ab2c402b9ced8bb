-- Lets the keys of a lock that several hold live at least half as long again as a lease of `ttl` ms
-- from now, and never shorter than they do. If one of them went before the longest lease in it,
-- somebody else would be granted what is held.
local function keep(lock, ttl)
  local life = redis.call('PTTL', lock)
  if life < ttl * 1.5 then
    life = ttl * 2
    redis.call('PEXPIRE', lock, life)
  end
  for _, key in ipairs({lock .. ':h', lock .. ':e'}) do
    if redis.call('PTTL', key) < life then
      redis.call('PEXPIRE', key, life)
    end
  end
end
