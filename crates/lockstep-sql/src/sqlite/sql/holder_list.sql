SELECT claim, owner, label, since_ms, until_ns, inbox, broken, weight, token
FROM lockstep_holder WHERE key = ?1 ORDER BY seq
