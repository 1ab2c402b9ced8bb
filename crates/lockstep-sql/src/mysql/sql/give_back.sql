UPDATE lockstep_lock SET claim = {nobody}
 WHERE lock_key = ? AND claim = ? AND turn = tail AND until_us > {statement_us}
