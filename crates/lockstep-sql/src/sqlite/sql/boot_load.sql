SELECT boot, epoch, state FROM lockstep_meta WHERE id = 1
