SELECT seq, claim, owner, label, ttl_ns, inbox, weight FROM lockstep_waiter
WHERE key = ?1 AND until_ns > ?2
ORDER BY seq
LIMIT 1
