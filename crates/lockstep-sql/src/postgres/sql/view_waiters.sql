UNION ALL
SELECT 2, c.key, w.seq, w.claim, w.owner, w.label, w.weight, c.total, 0, w.since_ms, 0, NULL, 0
  FROM chosen AS c JOIN {schema}.lockstep_waiter AS w
    ON w.key = c.key AND w.seq > c.turn AND w.until_us > c.now_us
