SELECT CASE WHEN lockstep_mutex_v1({key}, {wait_ms}) THEN 'taken' ELSE 'busy' END
