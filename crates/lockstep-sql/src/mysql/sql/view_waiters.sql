UNION ALL
SELECT 2, c.lock_key, w.seq, w.claim, w.owner, w.label, w.weight, c.total, 0, w.since_ms, 0, NULL, 0
  FROM chosen AS c JOIN lockstep_waiter AS w
    ON w.lock_key = c.lock_key AND w.seq > c.turn AND w.until_us > c.now_us
