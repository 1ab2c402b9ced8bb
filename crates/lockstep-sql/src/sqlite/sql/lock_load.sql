SELECT m.epoch, l.token, l.claim, l.owner, l.label, l.since_ms, l.until_ns, l.inbox, l.broken
FROM lockstep_meta AS m
LEFT JOIN lockstep_lock AS l ON l.key = ?1
WHERE m.id = 1
