UPDATE lockstep_lock
SET token = ?2, claim = ?3, owner = ?4, label = ?5, since_ms = ?6, until_ns = ?7, inbox = ?8,
    broken = ?9, weight = ?10, total = ?11
WHERE key = ?1
