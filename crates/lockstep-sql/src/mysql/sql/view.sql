-- A row of kind 0 per lock, with how many wait; then of kind 1 per holder, and of kind 2 per
-- waiter, in order: all of one moment.
SELECT 0 AS kind, c.lock_key, 0 AS seq, NULL AS claim, NULL AS owner, NULL AS label, 0 AS weight,
       c.total, 0 AS token, 0 AS since_ms, 0 AS left_us, NULL AS broken,
       IF(c.turn < c.tail, (
           SELECT COUNT(*) FROM lockstep_waiter AS w
            WHERE w.lock_key = c.lock_key AND w.seq > c.turn AND w.until_us > c.now_us
       ), 0) AS waiting
  FROM chosen AS c
UNION ALL
SELECT 1, c.lock_key, 0, c.claim, c.owner, c.label, c.weight, c.total, c.token, c.since_ms,
       c.until_us - c.now_us, c.broken, 0
  FROM chosen AS c
 WHERE c.claim NOT IN ({several}, {nobody}) AND c.until_us > c.now_us
UNION ALL
SELECT 1, c.lock_key, h.seq, h.claim, h.owner, h.label, h.weight, c.total, h.token, h.since_ms,
       h.until_us - c.now_us, h.broken, 0
  FROM chosen AS c JOIN lockstep_holder AS h ON h.lock_key = c.lock_key
 WHERE c.claim = {several} AND h.until_us > c.now_us
