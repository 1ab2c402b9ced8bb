-- Ends the hold on a lock whose row the caller has locked, and passes it on.
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
    {passing}
END
