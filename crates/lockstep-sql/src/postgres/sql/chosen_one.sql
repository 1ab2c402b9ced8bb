-- One lock with its waiters.
WITH clock AS MATERIALIZED (SELECT {now_us} AS now_us),
chosen AS MATERIALIZED (
    SELECT l.*, clock.now_us FROM clock JOIN {schema}.lockstep_lock AS l ON l.key = $1
)
