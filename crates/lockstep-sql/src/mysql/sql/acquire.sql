-- Asks once, for a lock that is not free or was never asked for; see ask.sql. Answers 'granted
-- <token>', 'queued <token of the last grant> <how many are ahead> <us left of the lease that ends
-- first>', 'busy', 'differs <total>' or 'broken <reason>'.
--
-- What is usual where many want one lock stands here, in as few statements and variables as can be:
-- each costs the server more than what it does. The rest is lockstep_decide_v1.
CREATE PROCEDURE IF NOT EXISTS lockstep_acquire_v1(
    IN p_key VARBINARY(320), IN p_claim BINARY(16), IN p_owner BINARY(16),
    IN p_label VARCHAR(200) CHARACTER SET utf8mb4, IN p_inbox BINARY(16), IN p_ttl_us BIGINT,
    IN p_wait TINYINT, IN p_weight INT, IN p_total INT
)
MODIFIES SQL DATA SQL SECURITY INVOKER
whole: BEGIN
    DECLARE v_now_us, v_turn, v_tail, v_until_us, v_place, v_joined, v_token BIGINT;
    DECLARE v_total INT;
    DECLARE v_answer VARCHAR(100);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        IF v_joined IS NOT NULL THEN
            DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = v_joined;
        END IF;
        RESIGNAL;
    END;

    -- Where one other holder has all of it and its lease lives, two of those who ask need not stand in
    -- line for the row.
    SELECT token, turn, tail, until_us, total, {now_us}
      INTO v_token, v_turn, v_tail, v_until_us, v_total, v_now_us
      FROM lockstep_lock
     WHERE lock_key = p_key AND claim NOT IN (p_claim, {nobody}) AND weight = total;
    IF v_until_us > v_now_us AND NOT p_wait AND v_total = p_total THEN
        -- Who does not want to wait changes nothing.
        SELECT 'busy' AS answer;
        LEAVE whole;
    ELSEIF v_until_us > v_now_us AND p_wait THEN
        -- Who waits already (p_wait is 2 if it may) only says that it is still there, and stays out
        -- of the way of whoever gives the lock back. If its place is still there, it was granted
        -- nothing meanwhile.
        IF p_wait <> 1 THEN
            SELECT seq INTO v_place FROM lockstep_waiter WHERE claim = p_claim AND lock_key = p_key;
        END IF;
        IF v_place > v_turn THEN
            UPDATE lockstep_waiter
               SET until_us = v_now_us + p_ttl_us, inbox = COALESCE(p_inbox, inbox)
             WHERE lock_key = p_key AND seq = v_place AND claim = p_claim AND until_us > v_now_us;
            IF ROW_COUNT() > 0 THEN
                CALL lockstep_queued_v1(
                    p_key, v_place, v_now_us, p_claim, v_token, v_turn, v_until_us, v_answer
                );
                SELECT v_answer AS answer;
                LEAVE whole;
            END IF;
        ELSEIF v_place IS NULL AND v_turn < v_tail AND v_total = p_total THEN
            -- Others wait, so whoever gives the lock back looks at the queue. To stand at its end
            -- without the lock's row, which would stay locked until this is on the disk; and then to
            -- look, behind whoever has that row now, whether others still wait: if so, a later
            -- release is bound to see this place, unless who took a later one has overtaken us already.
            INSERT IGNORE INTO lockstep_waiter
                (lock_key, claim, owner, label, weight, inbox, ttl_us, since_ms, until_us)
            VALUES (p_key, p_claim, p_owner, p_label, p_weight, p_inbox, p_ttl_us,
                    v_now_us DIV 1000, v_now_us + p_ttl_us);
            IF ROW_COUNT() = 1 THEN
                SET v_joined = LAST_INSERT_ID();
                SET v_until_us = NULL;
                SELECT token, turn, until_us, {now_us}
                  INTO v_token, v_turn, v_until_us, v_now_us
                  FROM lockstep_lock
                 WHERE lock_key = p_key AND claim NOT IN (p_claim, {nobody})
                   AND weight = total AND turn < tail AND turn < v_joined
                  LOCK IN SHARE MODE;
                IF v_until_us > v_now_us AND v_joined - v_turn <= 100 THEN
                    -- As in lockstep_queued_v1, where the queue cannot be long.
                    SELECT CONCAT('queued ', v_token, ' ', COUNT(*), ' ', v_until_us - v_now_us)
                               AS answer
                      FROM lockstep_waiter
                     WHERE lock_key = p_key AND seq > v_turn AND seq < v_joined
                       AND until_us > v_now_us;
                    LEAVE whole;
                ELSEIF v_until_us > v_now_us THEN
                    CALL lockstep_queued_v1(
                        p_key, v_joined, v_now_us, p_claim, v_token, v_turn, v_until_us, v_answer
                    );
                    SELECT v_answer AS answer;
                    LEAVE whole;
                END IF;
            END IF;
        END IF;
    END IF;
    CALL lockstep_decide_v1(
        p_key, p_claim, p_owner, p_label, p_inbox, p_ttl_us, p_wait, p_weight, p_total, v_joined
    );
END
