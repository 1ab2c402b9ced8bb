-- Gives back a hold that somebody waits for or shares, all but a reader's share of it (p_downgrade),
-- or a place in the queue; `done` says whether there was one, `taken` whether the lock is still
-- held. See give_back.sql.
CREATE PROCEDURE IF NOT EXISTS lockstep_release_v1(
    IN p_key VARBINARY(320), IN p_claim BINARY(16), IN p_downgrade BOOLEAN
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_now_us, v_until_us, v_place, v_lives_until_us, v_turn, v_tail, v_seq,
            v_ttl_us BIGINT;
    DECLARE v_claim, v_next, v_owner, v_inbox BINARY(16);
    DECLARE p_asker BINARY(16);                -- nobody: who gives back does not wait
    DECLARE v_label VARCHAR(200) CHARACTER SET utf8mb4;
    DECLARE v_weight, v_total INT;
    DECLARE v_done BOOLEAN DEFAULT FALSE;
    DECLARE v_marks TEXT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;

    SET @lockstep_wake = '';
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT NULLIF(claim, {nobody}), total, until_us, turn, tail
      INTO v_claim, v_total, v_until_us, v_turn, v_tail
      FROM lockstep_lock WHERE lock_key = p_key FOR UPDATE;
    SET v_now_us = {now_us};

    IF v_claim = p_claim AND v_until_us > v_now_us AND NOT p_downgrade THEN
        {passing}
        SET v_done = TRUE, v_claim = v_next;
    ELSEIF v_claim IS NOT NULL THEN
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
            SELECT seq, until_us INTO v_place, v_lives_until_us FROM lockstep_waiter
             WHERE claim = p_claim AND lock_key = p_key;
            IF v_place IS NOT NULL THEN
                DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = v_place;
                -- A place whose lease has run out is not there any more, forgotten or not.
                SET v_done = v_lives_until_us > v_now_us;
            END IF;
        END IF;
        CALL lockstep_heal_v1(p_key, v_now_us, NULL);
        SELECT NULLIF(claim, {nobody}) INTO v_claim FROM lockstep_lock WHERE lock_key = p_key;
    ELSEIF NOT p_downgrade THEN
        -- A place that was taken while the lock became free, by a request that got no further.
        SELECT seq, until_us INTO v_place, v_lives_until_us FROM lockstep_waiter
         WHERE claim = p_claim AND lock_key = p_key;
        IF v_place IS NOT NULL THEN
            DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = v_place;
            SET v_done = v_lives_until_us > v_now_us;
        END IF;
    END IF;
    COMMIT;
    IF @lockstep_wake <> '' THEN
        SET v_marks = @lockstep_wake;
        {waking}
    END IF;
    SELECT v_done AS done, v_claim IS NOT NULL AS taken;
END
