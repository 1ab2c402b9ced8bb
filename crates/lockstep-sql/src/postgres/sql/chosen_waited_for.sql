-- The locks with keys from $1 to before $2 that the owner $3 waits for, with their waiters.
WITH clock AS MATERIALIZED (SELECT {now_us} AS now_us),
chosen AS MATERIALIZED (
    SELECT l.*, clock.now_us FROM clock JOIN {schema}.lockstep_lock AS l ON l.key IN (
        SELECT w.key FROM {schema}.lockstep_waiter AS w
         WHERE w.owner = $3 AND w.key >= $1 AND w.key < $2 AND w.until_us > clock.now_us)
)
