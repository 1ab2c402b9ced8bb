-- Breaks whoever holds the lock; `done` is false if nobody does. Without p_now the holds live on to
-- the end of their leases and cannot be renewed; with p_now the lock passes on at once, and those who
-- held it hear of it when they renew.
CREATE PROCEDURE IF NOT EXISTS lockstep_break_v1(
    IN p_key VARBINARY(320), IN p_reason TEXT CHARACTER SET utf8mb4, IN p_now BOOLEAN
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_now_us, v_until_us, v_token BIGINT;
    DECLARE v_claim BINARY(16);
    DECLARE v_done BOOLEAN DEFAULT FALSE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;

    SET @lockstep_wake = '';
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT NULLIF(claim, {nobody}), until_us, token INTO v_claim, v_until_us, v_token
      FROM lockstep_lock WHERE lock_key = p_key FOR UPDATE;
    SET v_now_us = {now_us};

    IF v_claim IS NULL THEN
        SET v_done = FALSE;
    ELSEIF v_until_us <= v_now_us THEN
        -- The one that is next is innocent.
        CALL lockstep_heal_v1(p_key, v_now_us, NULL);
    ELSEIF v_claim = {several} THEN
        SET v_done = EXISTS (
            SELECT 1 FROM lockstep_holder WHERE lock_key = p_key AND until_us > v_now_us
        );
        IF p_now THEN
            DELETE FROM lockstep_holder WHERE lock_key = p_key;
        ELSE
            UPDATE lockstep_holder SET broken = p_reason
             WHERE lock_key = p_key AND until_us > v_now_us;
        END IF;
        CALL lockstep_heal_v1(p_key, v_now_us, NULL);
    ELSE
        SET v_done = TRUE;
        IF p_now THEN
            CALL lockstep_fence_v1(p_key, v_token + 1);
            CALL lockstep_pass_on_v1(p_key, v_now_us, NULL);
        ELSE
            UPDATE lockstep_lock SET broken = p_reason WHERE lock_key = p_key;
            CALL lockstep_heal_v1(p_key, v_now_us, NULL);
        END IF;
    END IF;
    COMMIT;
    IF @lockstep_wake <> '' THEN
        CALL lockstep_wake_v1(@lockstep_wake);
    END IF;
    SELECT v_done AS done;
END
