-- Ends the hold on a lock whose row the caller has locked, and grants it to the first waiter whose lease
-- lives, and to those that fit beside it; waiters before that one are dead and forgotten.
CREATE PROCEDURE IF NOT EXISTS lockstep_pass_on_v1(
    IN p_key VARBINARY(320), IN v_now_us BIGINT, IN p_asker BINARY(16)
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_next, v_owner, v_inbox BINARY(16);
    DECLARE v_label VARCHAR(200) CHARACTER SET utf8mb4;
    DECLARE v_weight, v_total INT;
    DECLARE v_turn, v_tail, v_seq, v_ttl_us BIGINT;

    SELECT turn, tail, total INTO v_turn, v_tail, v_total
      FROM lockstep_lock WHERE lock_key = p_key;
    {first}
    IF v_seq IS NULL THEN
        UPDATE lockstep_lock SET claim = {nobody}, turn = tail WHERE lock_key = p_key;
    ELSE
        DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq > v_turn AND seq <= v_seq;
        {grant}
        {tell}
        IF v_weight < v_total THEN
            CALL lockstep_join_v1(p_key, v_now_us, p_asker);
        END IF;
    END IF;
END
