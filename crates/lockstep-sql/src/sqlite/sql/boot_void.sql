DELETE FROM lockstep_waiter;
DELETE FROM lockstep_lock;
