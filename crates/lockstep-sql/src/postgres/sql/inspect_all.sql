-- The locks with keys from $1 to before $2 that somebody holds or waits for.
WITH clock AS MATERIALIZED (SELECT {now_us} AS now_us)
SELECT l.key, l.token, CASE WHEN l.until_us > clock.now_us THEN l.claim END AS claim, l.owner,
       l.label, l.since_ms, l.until_us - clock.now_us AS left_us, l.broken,
       CASE WHEN l.turn < l.tail THEN (
           SELECT count(*) FROM {schema}.lockstep_waiter AS w
            WHERE w.key = l.key AND w.seq > l.turn AND w.until_us > clock.now_us
       ) ELSE 0 END AS waiting
  FROM clock CROSS JOIN {schema}.lockstep_lock AS l
 WHERE l.key >= $1 AND l.key < $2 AND l.claim IS NOT NULL AND (
       l.until_us > clock.now_us OR l.turn < l.tail AND EXISTS (
           SELECT FROM {schema}.lockstep_waiter AS w
            WHERE w.key = l.key AND w.seq > l.turn AND w.until_us > clock.now_us))
 ORDER BY l.key LIMIT $3
