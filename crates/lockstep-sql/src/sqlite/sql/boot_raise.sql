UPDATE lockstep_meta SET boot = ?1, epoch = ?2, state = 1, syncs = syncs + 1 WHERE id = 1
