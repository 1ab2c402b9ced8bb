SELECT broken FROM lockstep_lock
WHERE key = ?1 AND claim = ?2 AND until_ns > ?3 AND broken IS NOT NULL
UNION ALL
SELECT broken FROM lockstep_holder
WHERE key = ?1 AND claim = ?2 AND until_ns > ?3 AND broken IS NOT NULL
