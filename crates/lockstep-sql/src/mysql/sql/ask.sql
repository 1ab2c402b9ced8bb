UPDATE lockstep_lock
   SET token = LAST_INSERT_ID(token + 1), claim = ?, owner = ?, label = ?, weight = ?, total = ?,
       since_ms = {statement_us} DIV 1000, until_us = {statement_us} + ?, broken = NULL
 WHERE lock_key = ? AND claim = {nobody}
