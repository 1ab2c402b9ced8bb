UPDATE lockstep_waiter SET until_ns = ?3, inbox = coalesce(?4, inbox) WHERE key = ?1 AND seq = ?2
