SELECT DISTINCT key FROM lockstep_waiter WHERE owner = ?1 AND until_ns > ?2 ORDER BY key
