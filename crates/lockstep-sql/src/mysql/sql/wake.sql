-- For those who are not in such a hurry that they would do it themselves.
CREATE PROCEDURE IF NOT EXISTS lockstep_wake_v1(IN v_marks TEXT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    {waking}
END
