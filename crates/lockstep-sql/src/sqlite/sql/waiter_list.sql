SELECT claim, owner, label, since_ms FROM lockstep_waiter
WHERE key = ?1 AND until_ns > ?2
ORDER BY seq
