-- The answer to a claim that has a place in the queue behind its holders.
CREATE PROCEDURE IF NOT EXISTS lockstep_queued_v1(
    IN p_key VARBINARY(320), IN p_place BIGINT, IN p_now_us BIGINT, IN p_claim BINARY(16),
    IN p_token BIGINT, IN p_turn BIGINT, IN p_until_us BIGINT,
    OUT p_answer VARCHAR(100)
)
READS SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_ahead BIGINT;

    IF p_claim = {several} THEN
        SELECT MIN(until_us) INTO p_until_us FROM lockstep_holder WHERE lock_key = p_key;
    END IF;
    SELECT COUNT(*) INTO v_ahead FROM (
        SELECT 1 FROM lockstep_waiter
         WHERE lock_key = p_key AND seq > p_turn AND seq < p_place AND until_us > p_now_us
         LIMIT 100
    ) AS ahead;
    SET p_answer = CONCAT('queued ', p_token, ' ', v_ahead, ' ', GREATEST(0, p_until_us - p_now_us));
END
