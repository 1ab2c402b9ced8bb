-- Ends the hold on a lock whose row the caller has locked, and grants it to the first waiter whose
-- lease lives, and to those that fit beside it; waiters before that one are dead and forgotten.
CREATE PROCEDURE IF NOT EXISTS lockstep_pass_on_v1(
    IN p_key VARBINARY(320), IN p_now_us BIGINT, IN p_asker BINARY(16)
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_next, v_owner, v_inbox BINARY(16);
    DECLARE v_label VARCHAR(200) CHARACTER SET utf8mb4;
    DECLARE v_weight, v_total INT;
    DECLARE v_turn, v_seq, v_ttl_us BIGINT;

    SELECT turn, total INTO v_turn, v_total FROM lockstep_lock WHERE lock_key = p_key;
    SELECT seq, claim, owner, label, weight, inbox, ttl_us
      INTO v_seq, v_next, v_owner, v_label, v_weight, v_inbox, v_ttl_us
      FROM lockstep_waiter
     WHERE lock_key = p_key AND seq > v_turn AND until_us > p_now_us
     ORDER BY seq LIMIT 1 FOR UPDATE;
    IF v_seq IS NULL THEN
        DELETE FROM lockstep_waiter
         WHERE lock_key = p_key AND seq > v_turn AND until_us <= p_now_us;
        UPDATE lockstep_lock SET claim = NULL, turn = tail WHERE lock_key = p_key;
    ELSE
        DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq > v_turn AND seq <= v_seq;
        UPDATE lockstep_lock
           SET token = token + 1, claim = v_next, owner = v_owner, label = v_label,
               weight = v_weight, since_ms = p_now_us DIV 1000, until_us = p_now_us + v_ttl_us,
               broken = NULL, turn = v_seq, tail = GREATEST(tail, v_seq, COALESCE(
                   (SELECT MAX(seq) FROM lockstep_waiter WHERE lock_key = p_key), 0
               ))
         WHERE lock_key = p_key;
        {tell}
        IF v_weight < v_total THEN
            CALL lockstep_join_v1(p_key, p_now_us, p_asker);
        END IF;
    END IF;
END
