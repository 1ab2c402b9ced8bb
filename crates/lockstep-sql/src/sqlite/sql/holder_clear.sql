DELETE FROM lockstep_holder WHERE key = ?1
