-- One lock with its waiters.
WITH chosen AS (
    SELECT l.*, {statement_us} AS now_us FROM lockstep_lock AS l WHERE l.lock_key = ?
)
