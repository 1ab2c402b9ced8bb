-- Asks once with the lock's row locked, whatever its state is; answers like acquire.sql, which it is the
-- rest of and which undoes it after an error. p_joined is a place at the end of the queue that was taken
-- meanwhile.
CREATE PROCEDURE IF NOT EXISTS lockstep_decide_v1(
    IN p_key VARBINARY(320), IN p_claim BINARY(16), IN p_owner BINARY(16),
    IN p_label VARCHAR(200) CHARACTER SET utf8mb4, IN p_inbox BINARY(16), IN p_ttl_us BIGINT,
    IN p_wait TINYINT, IN p_weight INT, IN p_total INT, IN p_joined BIGINT
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_now_us, v_used, v_turn, v_tail, v_until_us, v_place, v_token BIGINT;
    DECLARE v_claim BINARY(16);
    DECLARE v_weight, v_total INT;
    DECLARE v_broken, v_answer TEXT CHARACTER SET utf8mb4;

    SET @lockstep_wake = '';
    -- Each statement must see what was committed while the one before waited.
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    decided: BEGIN
        WHILE v_token IS NULL DO
            SELECT NULLIF(claim, {nobody}), weight, total, until_us, token, turn, tail, broken
              INTO v_claim, v_weight, v_total, v_until_us, v_token, v_turn, v_tail, v_broken
              FROM lockstep_lock WHERE lock_key = p_key FOR UPDATE;
            IF v_token IS NULL THEN
                SET v_now_us = {now_us};
                INSERT INTO lockstep_lock
                    (lock_key, token, claim, owner, label, weight, total, since_ms, until_us)
                VALUES (p_key, 1, p_claim, p_owner, p_label, p_weight, p_total, v_now_us DIV 1000,
                        v_now_us + p_ttl_us)
                ON DUPLICATE KEY UPDATE token = token;
                IF ROW_COUNT() = 1 THEN
                    SET v_answer = 'granted 1';
                    LEAVE decided;
                END IF;
            END IF;
        END WHILE;

        -- The row is ours until the end of this transaction; only now does the clock count.
        SET v_now_us = {now_us};
        IF v_claim IS NULL OR v_until_us <= v_now_us OR v_weight < v_total THEN
            CALL lockstep_heal_v1(p_key, v_now_us, p_claim);
            SELECT NULLIF(claim, {nobody}), weight, total, until_us, token, turn, tail, broken
              INTO v_claim, v_weight, v_total, v_until_us, v_token, v_turn, v_tail, v_broken
              FROM lockstep_lock WHERE lock_key = p_key;
        END IF;

        IF v_claim IS NULL THEN
            UPDATE lockstep_lock
               SET token = token + 1, claim = p_claim, owner = p_owner, label = p_label,
                   weight = p_weight, total = p_total, since_ms = v_now_us DIV 1000,
                   until_us = v_now_us + p_ttl_us, broken = NULL
             WHERE lock_key = p_key;
            SET v_answer = CONCAT('granted ', v_token + 1);
            LEAVE decided;
        END IF;
        IF v_claim = p_claim THEN
            IF v_broken IS NULL THEN
                UPDATE lockstep_lock SET until_us = v_now_us + p_ttl_us WHERE lock_key = p_key;
            END IF;
            SET v_answer = COALESCE(CONCAT('broken ', v_broken), CONCAT('granted ', v_token));
            LEAVE decided;
        END IF;
        IF v_claim = {several} THEN
            SELECT COALESCE(CONCAT('broken ', broken), CONCAT('granted ', token)) INTO v_answer
              FROM lockstep_holder WHERE lock_key = p_key AND claim = p_claim FOR UPDATE;
            IF v_answer IS NOT NULL THEN
                UPDATE lockstep_holder SET until_us = v_now_us + p_ttl_us
                 WHERE lock_key = p_key AND claim = p_claim AND broken IS NULL;
                LEAVE decided;
            END IF;
        END IF;
        IF v_total <> p_total THEN
            SET v_answer = CONCAT('differs ', v_total);
            LEAVE decided;
        END IF;
        IF v_weight < v_total AND v_turn = v_tail THEN
            SET v_used = v_weight;
            IF v_claim = {several} THEN
                SELECT SUM(weight) INTO v_used FROM lockstep_holder WHERE lock_key = p_key;
            END IF;
            IF v_used + p_weight <= v_total THEN
                CALL lockstep_add_v1(
                    p_key, p_claim, p_owner, p_label, p_weight, v_now_us, p_ttl_us
                );
                SELECT CONCAT('granted ', token) INTO v_answer
                  FROM lockstep_lock WHERE lock_key = p_key;
                LEAVE decided;
            END IF;
        END IF;
        IF NOT p_wait THEN
            SET v_answer = 'busy';
            LEAVE decided;
        END IF;

        -- A place whose lease has run out is lost, and so is one that a later one was served before:
        -- nobody looks there. The claim goes to the end.
        SELECT seq INTO v_place FROM lockstep_waiter WHERE claim = p_claim AND lock_key = p_key;
        IF v_place IS NOT NULL THEN
            UPDATE lockstep_waiter
               SET until_us = v_now_us + p_ttl_us, inbox = COALESCE(p_inbox, inbox)
             WHERE lock_key = p_key AND seq = v_place AND until_us > v_now_us
               AND (seq > v_turn OR v_turn = v_tail);
            IF ROW_COUNT() = 0 THEN
                DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = v_place;
                SET v_place = NULL;
            END IF;
        END IF;
        IF v_place IS NULL THEN
            INSERT INTO lockstep_waiter
                (lock_key, claim, owner, label, weight, inbox, ttl_us, since_ms, until_us)
            VALUES (p_key, p_claim, p_owner, p_label, p_weight, p_inbox, p_ttl_us,
                    v_now_us DIV 1000, v_now_us + p_ttl_us);
            SET v_place = LAST_INSERT_ID();
        END IF;
        IF v_turn = v_tail OR v_tail < v_place THEN
            -- Whoever gives the lock back shall see that somebody waits. An older MySQL that starts
            -- again begins the series of places anew: nobody is served before the first in a queue.
            UPDATE lockstep_lock SET turn = IF(turn = tail, v_place - 1, turn), tail = v_place
             WHERE lock_key = p_key;
            SET v_turn = IF(v_turn = v_tail, v_place - 1, v_turn);
        END IF;
        CALL lockstep_queued_v1(
            p_key, v_place, v_now_us, v_claim, v_token, v_turn, v_until_us, v_answer
        );
    END;
    IF p_joined IS NOT NULL AND v_answer NOT LIKE 'queued %' THEN
        -- It was granted the lock while it took a place.
        DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = p_joined;
    END IF;
    COMMIT;
    IF @lockstep_wake <> '' THEN
        CALL lockstep_wake_v1(@lockstep_wake);
    END IF;
    SELECT v_answer AS answer;
END
