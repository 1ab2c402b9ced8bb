DELETE FROM lockstep_waiter WHERE key = ?1 AND seq <= ?2
