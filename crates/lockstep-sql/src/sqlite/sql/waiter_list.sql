SELECT claim, owner, label, since_ms, weight FROM lockstep_waiter
WHERE key = ?1 AND until_ns > ?2
ORDER BY seq
