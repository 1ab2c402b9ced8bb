-- Gives back a hold, all but a reader's share of it (p_downgrade), or a place in the queue, whatever the
-- state of the lock is. Ends the transaction that release.sql has begun, and answers like it.
CREATE PROCEDURE IF NOT EXISTS lockstep_leave_v1(
    IN p_key VARBINARY(320), IN p_claim BINARY(16), IN p_downgrade BOOLEAN
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_now_us, v_until_us, v_place, v_lives_until_us BIGINT;
    DECLARE v_claim BINARY(16);
    DECLARE v_total INT;
    DECLARE v_done BOOLEAN DEFAULT FALSE;

    SET @lockstep_wake = '';
    SELECT NULLIF(claim, {nobody}), total, until_us INTO v_claim, v_total, v_until_us
      FROM lockstep_lock WHERE lock_key = p_key FOR UPDATE;
    SET v_now_us = {now_us};

    IF v_claim = p_claim AND v_until_us > v_now_us AND NOT p_downgrade THEN
        CALL lockstep_pass_on_v1(p_key, v_now_us, NULL);
        SET v_done = TRUE;
    ELSE
        IF v_claim = p_claim AND v_until_us > v_now_us THEN
            IF v_total = 2147483647 THEN
                UPDATE lockstep_lock SET weight = 1 WHERE lock_key = p_key;
                SET v_done = TRUE;
            END IF;
        ELSEIF v_claim = {several} AND p_downgrade THEN
            -- Who holds it beside others has no more than a reader's share of it.
            SET v_done = v_total = 2147483647 AND EXISTS (
                SELECT 1 FROM lockstep_holder
                 WHERE lock_key = p_key AND claim = p_claim AND until_us > v_now_us
            );
        ELSEIF v_claim = {several} THEN
            DELETE FROM lockstep_holder
             WHERE lock_key = p_key AND claim = p_claim AND until_us > v_now_us;
            SET v_done = ROW_COUNT() > 0;
        END IF;
        IF NOT v_done AND NOT p_downgrade THEN
            -- Also before a lock that nobody has: a place that was taken while it became free, by a
            -- request that got no further.
            SELECT seq, until_us INTO v_place, v_lives_until_us FROM lockstep_waiter
             WHERE claim = p_claim AND lock_key = p_key;
            IF v_place IS NOT NULL THEN
                DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = v_place;
                -- A place whose lease has run out is not there any more, forgotten or not.
                SET v_done = v_lives_until_us > v_now_us;
            END IF;
        END IF;
        IF v_claim IS NOT NULL THEN
            CALL lockstep_heal_v1(p_key, v_now_us, NULL);
        END IF;
    END IF;
    SELECT NULLIF(claim, {nobody}) INTO v_claim FROM lockstep_lock WHERE lock_key = p_key;
    COMMIT;
    IF @lockstep_wake <> '' THEN
        CALL lockstep_wake_v1(@lockstep_wake);
    END IF;
    SELECT v_done AS done, v_claim IS NOT NULL AS taken;
END
