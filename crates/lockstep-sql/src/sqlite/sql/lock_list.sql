SELECT l.key, l.token, l.total, l.claim, l.owner, l.label, l.since_ms, l.until_ns, l.inbox,
       l.broken, l.weight,
       (SELECT count(*) FROM lockstep_waiter AS w WHERE w.key = l.key AND w.until_ns > ?2)
FROM lockstep_lock AS l
WHERE l.key >= ?1 AND l.claim IS NOT NULL
ORDER BY l.key
