UPDATE lockstep_lock SET claim = NULL
 WHERE lock_key = ? AND claim = ? AND turn = tail AND until_us > {statement_us}
