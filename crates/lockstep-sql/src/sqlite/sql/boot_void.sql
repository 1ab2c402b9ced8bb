DELETE FROM lockstep_waiter;
DELETE FROM lockstep_holder;
DELETE FROM lockstep_lock;
