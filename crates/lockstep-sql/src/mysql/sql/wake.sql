-- Wakes listeners, after the commit that grants them something: each mark is 32 digits, followed by a
-- comma. A listener keeps a user lock with its mark on the connection that it waits with (see
-- listen.rs), so that a connection id that was given to somebody else can never be hit by mistake; to
-- ask for the keeper of a user lock costs a tenth of looking through the list of connections.
-- Whoever cannot be woken (gone, or another user's) asks by itself in time.
CREATE PROCEDURE IF NOT EXISTS lockstep_wake_v1(IN p_marks TEXT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_thread BIGINT UNSIGNED;
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;

    WHILE CHAR_LENGTH(p_marks) > 0 DO
        SET v_thread = IS_USED_LOCK(CONCAT('lockstep-ear-', LEFT(p_marks, 32)));
        IF v_thread IS NOT NULL THEN
            KILL QUERY v_thread;
        END IF;
        SET p_marks = SUBSTRING(p_marks, 34);
    END WHILE;
END
