-- Lets waiters in beside those who hold a lock, whose row the caller has locked: from the head of
-- the queue, as long as they fit. Dead ones are forgotten.
CREATE PROCEDURE IF NOT EXISTS lockstep_join_v1(
    IN p_key VARBINARY(320), IN v_now_us BIGINT, IN p_asker BINARY(16)
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_claim, v_next, v_owner, v_inbox BINARY(16);
    DECLARE v_label VARCHAR(200) CHARACTER SET utf8mb4;
    DECLARE v_total, v_weight INT;
    DECLARE v_used, v_turn, v_tail, v_seq, v_ttl_us BIGINT;

    SELECT claim, weight, total, turn, tail INTO v_claim, v_used, v_total, v_turn, v_tail
      FROM lockstep_lock WHERE lock_key = p_key;
    IF v_turn < v_tail THEN
        SELECT GREATEST(v_tail, COALESCE(MAX(seq), 0)) INTO v_tail
          FROM lockstep_waiter WHERE lock_key = p_key;
    END IF;
    IF v_claim = {several} AND v_turn < v_tail THEN
        SELECT SUM(weight) INTO v_used FROM lockstep_holder WHERE lock_key = p_key;
    END IF;
    queue: WHILE v_turn < v_tail DO
        SET v_seq = NULL;
        {first}
        IF v_seq IS NULL THEN
            UPDATE lockstep_lock SET turn = v_tail, tail = v_tail WHERE lock_key = p_key;
            LEAVE queue;
        END IF;
        IF v_used + v_weight > v_total THEN
            LEAVE queue;
        END IF;
        DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq > v_turn AND seq <= v_seq;
        CALL lockstep_add_v1(p_key, v_next, v_owner, v_label, v_weight, v_now_us, v_ttl_us);
        UPDATE lockstep_lock SET turn = v_seq, tail = v_tail WHERE lock_key = p_key;
        SET v_turn = v_seq, v_used = v_used + v_weight;
        {tell}
    END WHILE;
END
