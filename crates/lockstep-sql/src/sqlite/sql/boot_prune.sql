DELETE FROM lockstep_lock WHERE claim IS NULL
