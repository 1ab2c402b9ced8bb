-- Heals a lock whose row the caller has locked: leases that have run out end, and waiters are let in
-- as long as they fit. Every take-over from a holder that did not give back happens here.
--
-- A renewal that comes between keeps its holder: it is either seen here or finds its row gone.
CREATE PROCEDURE IF NOT EXISTS lockstep_heal_v1(
    IN p_key VARBINARY(320), IN p_now_us BIGINT, IN p_asker BINARY(16)
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_claim BINARY(16);
    DECLARE v_weight, v_total INT;
    DECLARE v_until_us, v_token BIGINT;
    DECLARE v_ended BOOLEAN DEFAULT FALSE;

    SELECT NULLIF(claim, {nobody}), weight, total, until_us, token
      INTO v_claim, v_weight, v_total, v_until_us, v_token
      FROM lockstep_lock WHERE lock_key = p_key;
    IF v_claim = {several} THEN
        DELETE FROM lockstep_holder WHERE lock_key = p_key AND until_us <= p_now_us;
        IF NOT EXISTS (SELECT 1 FROM lockstep_holder WHERE lock_key = p_key) THEN
            SET v_ended = TRUE;
        END IF;
    ELSEIF v_claim IS NOT NULL AND v_until_us <= p_now_us THEN
        SET v_ended = TRUE;
    END IF;
    IF v_ended THEN
        -- Of several, one may not have given its share back, now or earlier; as long as others had
        -- theirs, with the same token, nobody was shut out.
        CALL lockstep_fence_v1(p_key, v_token + 1);
    END IF;
    IF v_ended OR v_claim IS NULL THEN
        CALL lockstep_pass_on_v1(p_key, p_now_us, p_asker);
    ELSEIF v_weight < v_total THEN
        CALL lockstep_join_v1(p_key, p_now_us, p_asker);
    END IF;
END
