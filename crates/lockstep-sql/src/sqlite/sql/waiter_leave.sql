DELETE FROM lockstep_waiter WHERE key = ?1 AND claim = ?2 RETURNING until_ns
