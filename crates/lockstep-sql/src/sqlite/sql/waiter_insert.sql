INSERT INTO lockstep_waiter
    (key, seq, claim, owner, label, since_ms, until_ns, ttl_ns, inbox, weight)
SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
FROM lockstep_waiter WHERE key = ?1
RETURNING seq
