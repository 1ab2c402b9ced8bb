-- Gives back a hold or a place in the queue. A lock that nobody waits for is freed by this statement
-- alone. Who joins the queue says so in this very row first, so that a release which had to wait
-- for the row cannot miss it.
--
-- Nobody is granted anything by that, so it does not wait for the disk: if the server crashes
-- before it gets there, the lock is free when its lease ends, as after a crash of the holder. The
-- next grant waits for the disk, and this goes before it.
WITH freed AS (
    UPDATE {schema}.lockstep_lock AS l SET claim = NULL
     WHERE l.key = $1 AND l.claim = $2 AND l.turn = l.tail AND l.until_us > {now_us}
    RETURNING set_config('synchronous_commit', 'off', true) = 'off' AS done
)
SELECT coalesce((SELECT freed.done FROM freed), {schema}.lockstep_release_v1($1, $2, false)) AS done
