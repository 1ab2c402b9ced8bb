-- Gives back a hold that somebody waits for or shares, all but a reader's share of it (p_downgrade),
-- or a place in the queue; `done` says whether there was one, `taken` whether the lock is still
-- held. See give_back.sql.
--
-- What is usual where many want one lock stands here, in as few statements and variables as can be:
-- each costs the server more than what it does. The rest is lockstep_leave_v1.
CREATE PROCEDURE IF NOT EXISTS lockstep_release_v1(
    IN p_key VARBINARY(320), IN p_claim BINARY(16), IN p_downgrade BOOLEAN
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_now_us, v_until_us, v_lives_until_us, v_token, v_turn, v_tail, v_seq, v_ttl_us BIGINT;
    DECLARE v_next, v_owner, v_inbox BINARY(16);
    DECLARE v_label VARCHAR(200) CHARACTER SET utf8mb4;
    DECLARE v_weight, v_total INT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;

    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SELECT total, until_us, token, turn, tail INTO v_total, v_until_us, v_token, v_turn, v_tail
      FROM lockstep_lock WHERE lock_key = p_key AND claim = p_claim AND NOT p_downgrade FOR UPDATE;
    -- The row is ours until the end of this transaction; only now do the clock and the queue count.
    SELECT seq, claim, owner, label, weight, inbox, ttl_us, until_us, {now_us}
      INTO v_seq, v_next, v_owner, v_label, v_weight, v_inbox, v_ttl_us, v_lives_until_us, v_now_us
      FROM lockstep_waiter WHERE lock_key = p_key AND seq > v_turn
     ORDER BY seq LIMIT 1 FOR UPDATE;
    IF v_until_us > v_now_us AND v_lives_until_us > v_now_us AND v_weight = v_total
       AND v_inbox IS NOT NULL THEN
        -- The next wants all of it, lives and listens.
        DELETE FROM lockstep_waiter WHERE lock_key = p_key AND seq = v_seq;
        {grant}
        COMMIT;
        -- Before anybody is told: a MariaDB from 10.6 on goes on in the middle of a commit, and waits for
        -- the disk only where it sends something to its client. This is sent at once.
        SELECT TRUE AS done, TRUE AS taken;
        BEGIN
            -- Our connection vouches for this grant until it does so for another (see listen.rs). Then
            -- the next one is woken as in wake.sql; if its ear is gone, that is an error like any other.
            DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
            DO RELEASE_LOCK(COALESCE(@lockstep_told, '-')),
               GET_LOCK(CONCAT('lockstep-told-', HEX(v_next), '-', HEX(v_token + 1)), 0);
            SET @lockstep_told = CONCAT('lockstep-told-', HEX(v_next), '-', HEX(v_token + 1));
            KILL QUERY IS_USED_LOCK(CONCAT('lockstep-ear-', HEX(v_inbox)));
        END;
    ELSE
        CALL lockstep_leave_v1(p_key, p_claim, p_downgrade);
    END IF;
END
