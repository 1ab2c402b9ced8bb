UPDATE lockstep_meta SET state = 2 WHERE id = 1 AND boot = ?1 AND epoch = ?2 AND state = 1
