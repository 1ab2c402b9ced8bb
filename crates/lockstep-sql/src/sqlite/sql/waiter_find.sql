SELECT seq, until_ns FROM lockstep_waiter WHERE key = ?1 AND claim = ?2
