-- A row of kind 0 per lock, with how many wait; then of kind 1 per holder, and of kind 2 per
-- waiter, in order: all of one moment.
SELECT 0 AS kind, c.key, 0::bigint AS seq, NULL::uuid AS claim, NULL::uuid AS owner,
       NULL::text AS label, 0 AS weight, c.total, 0::bigint AS token, 0::bigint AS since_ms,
       0::bigint AS left_us, NULL::text AS broken, CASE WHEN c.turn < c.tail THEN (
           SELECT count(*) FROM {schema}.lockstep_waiter AS w
            WHERE w.key = c.key AND w.seq > c.turn AND w.until_us > c.now_us
       ) ELSE 0 END AS waiting
  FROM chosen AS c
UNION ALL
SELECT 1, c.key, 0, c.claim, c.owner, c.label, c.weight, c.total, c.token, c.since_ms,
       c.until_us - c.now_us, c.broken, 0
  FROM chosen AS c
 WHERE c.claim <> '00000000-0000-0000-0000-000000000000' AND c.until_us > c.now_us
UNION ALL
SELECT 1, c.key, h.seq, h.claim, h.owner, h.label, h.weight, c.total, h.token, h.since_ms,
       h.until_us - c.now_us, h.broken, 0
  FROM chosen AS c JOIN {schema}.lockstep_holder AS h ON h.key = c.key
 WHERE c.claim = '00000000-0000-0000-0000-000000000000' AND h.until_us > c.now_us
