SELECT count(*) FROM (
    SELECT 1 FROM lockstep_waiter WHERE key = ?1 AND seq < ?2 AND until_ns > ?3 LIMIT 100
)
