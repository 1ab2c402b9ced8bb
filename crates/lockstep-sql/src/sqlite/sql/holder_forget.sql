DELETE FROM lockstep_holder WHERE key = ?1 AND claim = ?2
