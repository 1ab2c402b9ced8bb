-- The locks with keys from the first to before the second that somebody holds or waits for, without
-- their waiters.
WITH chosen AS (
    SELECT l.*, {statement_us} AS now_us FROM lockstep_lock AS l
     WHERE l.lock_key >= ? AND l.lock_key < ? AND l.claim <> {nobody} AND (
           l.until_us > {statement_us} AND (
               l.claim <> {several} OR EXISTS (
                   SELECT 1 FROM lockstep_holder AS h
                    WHERE h.lock_key = l.lock_key AND h.until_us > {statement_us}))
           OR l.turn < l.tail AND EXISTS (
               SELECT 1 FROM lockstep_waiter AS w
                WHERE w.lock_key = l.lock_key AND w.seq > l.turn AND w.until_us > {statement_us}))
     ORDER BY l.lock_key LIMIT ?
)
