UPDATE lockstep_lock
SET claim = NULL, owner = NULL, label = NULL, since_ms = NULL, until_ns = NULL, inbox = NULL,
    broken = NULL
WHERE key = ?1 AND claim = ?2 AND until_ns > ?3
  AND NOT EXISTS (SELECT 1 FROM lockstep_waiter WHERE key = ?1)
