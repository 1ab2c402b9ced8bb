-- The locks with keys from $1 to before $2 that somebody holds or waits for, without their waiters.
WITH clock AS MATERIALIZED (SELECT {now_us} AS now_us),
chosen AS MATERIALIZED (
    SELECT l.*, clock.now_us FROM clock CROSS JOIN {schema}.lockstep_lock AS l
     WHERE l.key >= $1 AND l.key < $2 AND l.claim IS NOT NULL AND (
           l.until_us > clock.now_us AND (
               l.claim <> '00000000-0000-0000-0000-000000000000' OR EXISTS (
                   SELECT FROM {schema}.lockstep_holder AS h
                    WHERE h.key = l.key AND h.until_us > clock.now_us))
           OR l.turn < l.tail AND EXISTS (
               SELECT FROM {schema}.lockstep_waiter AS w
                WHERE w.key = l.key AND w.seq > l.turn AND w.until_us > clock.now_us))
     ORDER BY l.key LIMIT $3
)
