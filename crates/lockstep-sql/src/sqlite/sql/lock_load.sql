SELECT m.epoch, l.token, l.total, l.claim, l.owner, l.label, l.since_ms, l.until_ns, l.inbox,
       l.broken, l.weight
FROM lockstep_meta AS m
LEFT JOIN lockstep_lock AS l ON l.key = ?1
WHERE m.id = 1
