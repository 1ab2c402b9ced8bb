-- Asks once, for a lock that is not free or was never asked for; see ask.sql. Answers 'granted
-- <token>', 'queued <token of the last grant> <how many are ahead> <us left of the lease that ends
-- first>', 'busy', 'differs <total>' or 'broken <reason>'.
CREATE PROCEDURE IF NOT EXISTS lockstep_acquire_v1(
    IN p_key VARBINARY(320), IN p_claim BINARY(16), IN p_owner BINARY(16),
    IN p_label VARCHAR(200) CHARACTER SET utf8mb4, IN p_inbox BINARY(16), IN p_ttl_us BIGINT,
    IN p_wait TINYINT, IN p_weight INT, IN p_total INT
)
MODIFIES SQL DATA SQL SECURITY INVOKER
whole: BEGIN
    DECLARE v_now_us, v_used, v_turn, v_tail, v_until_us, v_place, v_joined BIGINT;
    DECLARE v_token BIGINT;
    DECLARE v_claim BINARY(16);
    DECLARE v_weight, v_total INT;
    DECLARE v_broken TEXT CHARACTER SET utf8mb4;
    DECLARE v_answer TEXT CHARACTER SET utf8mb4;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        IF v_joined IS NOT NULL THEN
            DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = v_joined;
        END IF;
        RESIGNAL;
    END;

    SET @lockstep_wake = '';
    SET v_now_us = {now_us};
    -- Where one other holder has all of it and its lease lives, two of those who ask need not stand in
    -- line for the row.
    SELECT claim, token, turn, tail, until_us, total
      INTO v_claim, v_token, v_turn, v_tail, v_until_us, v_total
      FROM lockstep_lock
     WHERE lock_key = p_key AND claim NOT IN (p_claim, {nobody}) AND until_us > v_now_us
       AND weight = total;
    IF v_claim IS NOT NULL AND NOT p_wait AND v_total = p_total THEN
        -- Who does not want to wait changes nothing.
        SELECT 'busy' AS answer;
        LEAVE whole;
    ELSEIF v_claim IS NOT NULL AND p_wait THEN
        -- Who waits already (p_wait is 2 if it may) only says that it is still there, and stays out
        -- of the way of whoever gives the lock back. If its place is still there, it was granted
        -- nothing meanwhile.
        IF p_wait <> 1 THEN
            SELECT seq INTO v_place FROM lockstep_waiter WHERE claim = p_claim AND lock_key = p_key;
        END IF;
        IF v_place IS NOT NULL THEN
            UPDATE lockstep_waiter
               SET until_us = v_now_us + p_ttl_us, inbox = COALESCE(p_inbox, inbox)
             WHERE lock_key = p_key AND seq = v_place AND claim = p_claim AND until_us > v_now_us;
            IF ROW_COUNT() > 0 THEN
                CALL lockstep_queued_v1(
                    p_key, v_place, v_now_us, v_claim, v_token, v_turn, v_until_us, v_answer
                );
                SELECT v_answer AS answer;
                LEAVE whole;
            END IF;
        ELSEIF v_turn < v_tail AND v_total = p_total THEN
            -- Others wait, so whoever gives the lock back looks at the queue. To stand at its end
            -- without the lock's row, which would stay locked until this is on the disk; and then to
            -- look, behind whoever has that row now, whether others still wait: if so, a later
            -- release is bound to see this place.
            INSERT IGNORE INTO lockstep_waiter
                (lock_key, claim, owner, label, weight, inbox, ttl_us, since_ms, until_us)
            VALUES (p_key, p_claim, p_owner, p_label, p_weight, p_inbox, p_ttl_us,
                    v_now_us DIV 1000, v_now_us + p_ttl_us);
            IF ROW_COUNT() = 1 THEN
                SET v_joined = LAST_INSERT_ID(), v_place = v_joined, v_claim = NULL;
                SELECT claim, token, turn, until_us INTO v_claim, v_token, v_turn, v_until_us
                  FROM lockstep_lock
                 WHERE lock_key = p_key AND claim NOT IN (p_claim, {nobody})
                   AND weight = total AND turn < tail
                  LOCK IN SHARE MODE;
                SET v_now_us = {now_us};
                IF v_claim IS NOT NULL AND v_until_us > v_now_us THEN
                    -- As in lockstep_queued_v1, where the queue cannot be long.
                    IF v_place - v_turn <= 100 THEN
                        SELECT CONCAT('queued ', v_token, ' ', COUNT(*), ' ',
                                      GREATEST(0, v_until_us - v_now_us)) AS answer
                          FROM lockstep_waiter
                         WHERE lock_key = p_key AND seq > v_turn AND seq < v_place
                           AND until_us > v_now_us;
                        LEAVE whole;
                    END IF;
                    CALL lockstep_queued_v1(
                        p_key, v_place, v_now_us, v_claim, v_token, v_turn, v_until_us, v_answer
                    );
                    SELECT v_answer AS answer;
                    LEAVE whole;
                END IF;
            END IF;
        END IF;
    END IF;

    -- Each statement must see what was committed while the one before waited.
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    decided: BEGIN
        SET v_token = NULL;
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

        -- A place whose lease has run out is lost, and the claim goes to the end.
        SET v_place = NULL;
        SELECT seq INTO v_place FROM lockstep_waiter WHERE claim = p_claim AND lock_key = p_key;
        IF v_place IS NOT NULL THEN
            UPDATE lockstep_waiter
               SET until_us = v_now_us + p_ttl_us, inbox = COALESCE(p_inbox, inbox)
             WHERE lock_key = p_key AND seq = v_place AND until_us > v_now_us;
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
    IF v_joined IS NOT NULL AND v_answer NOT LIKE 'queued %' THEN
        -- It was granted the lock while it took a place.
        DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = v_joined;
    END IF;
    COMMIT;
    IF @lockstep_wake <> '' THEN
        CALL lockstep_wake_v1(@lockstep_wake);
    END IF;
    SELECT v_answer AS answer;
END
