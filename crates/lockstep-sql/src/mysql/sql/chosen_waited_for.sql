-- The locks with keys from the first to before the second that an owner waits for, with their waiters.
WITH chosen AS (
    SELECT l.*, {statement_us} AS now_us FROM lockstep_lock AS l WHERE l.lock_key IN (
        SELECT w.lock_key FROM lockstep_waiter AS w
         WHERE w.lock_key >= ? AND w.lock_key < ? AND w.owner = ? AND w.until_us > {statement_us})
)
