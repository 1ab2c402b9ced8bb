-- Asks once. A lock that is free is taken by this statement alone; to enter a function first costs
-- a few per cent of a pair. If the row is locked, PostgreSQL waits and looks at it again as it then is; a
-- clock read before that makes the lease only shorter.
WITH free AS (
    UPDATE {schema}.lockstep_lock AS l
       SET token = l.token + 1, claim = $2, owner = $3, label = $4, inbox = $5,
           since_ms = {now_us} / 1000, until_us = {now_us} + $6, broken = NULL,
           weight = $8, total = $9
     WHERE l.key = $1 AND l.claim IS NULL
    RETURNING 'granted ' || l.token AS answer
)
SELECT coalesce(
    (SELECT free.answer FROM free),
    {schema}.lockstep_acquire_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)
) AS answer
