INSERT INTO lockstep_holder
    (key, seq, claim, owner, label, since_ms, until_ns, inbox, broken, weight, token)
SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
FROM lockstep_holder WHERE key = ?1
ON CONFLICT (key, claim) DO UPDATE
SET until_ns = excluded.until_ns, inbox = excluded.inbox, broken = excluded.broken,
    weight = excluded.weight
