UPDATE lockstep_holder SET until_ns = ?4
WHERE key = ?1 AND claim = ?2 AND until_ns > ?3 AND broken IS NULL
