UPDATE lockstep_meta SET state = 0 WHERE id = 1
