-- One lock and its waiters, all of one moment: a row per waiter, or one with w.* NULL.
WITH clock AS MATERIALIZED (SELECT {now_us} AS now_us)
SELECT l.key, l.token, CASE WHEN l.until_us > clock.now_us THEN l.claim END AS claim, l.owner,
       l.label, l.since_ms, l.until_us - clock.now_us AS left_us, l.broken,
       w.claim AS waiter, w.owner AS waiter_owner, w.label AS waiter_label,
       w.since_ms AS waiter_since_ms
  FROM clock
  JOIN {schema}.lockstep_lock AS l ON l.key = $1
  LEFT JOIN {schema}.lockstep_waiter AS w
    ON w.key = l.key AND w.seq > l.turn AND w.until_us > clock.now_us
 ORDER BY w.seq
