-- Extends each hold by its ttl from now, if it is still the claim's and neither run out nor broken.
-- A hold is its claim (32 digits), its ttl in us (16 digits), the length of its key in bytes (4 digits)
-- and its key. Answers in order, each followed by a comma: 'renewed', 'lost', or 'broken ' and the
-- reason in hexadecimal.
--
-- They come sorted by key, so that two batches cannot wait for each other in a circle.
CREATE PROCEDURE IF NOT EXISTS lockstep_renew_v1(IN p_holds LONGBLOB)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE v_at INT DEFAULT 1;
    DECLARE v_size INT;
    DECLARE v_ttl_us BIGINT;
    DECLARE v_key VARBINARY(320);
    DECLARE v_claim BINARY(16);
    DECLARE v_broken TEXT CHARACTER SET utf8mb4;
    DECLARE v_answers LONGTEXT CHARACTER SET utf8mb4 DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
        ROLLBACK;
        RESIGNAL;
    END;

    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    WHILE v_at <= LENGTH(p_holds) DO
        SET v_claim = UNHEX(SUBSTRING(p_holds, v_at, 32));
        SET v_ttl_us = SUBSTRING(p_holds, v_at + 32, 16), v_size = SUBSTRING(p_holds, v_at + 48, 4);
        SET v_key = SUBSTRING(p_holds, v_at + 52, v_size);
        SET v_at = v_at + 52 + v_size;
        UPDATE lockstep_lock SET until_us = {now_us} + v_ttl_us
         WHERE lock_key = v_key AND claim = v_claim AND broken IS NULL AND until_us > {now_us};
        IF ROW_COUNT() = 0 THEN
            UPDATE lockstep_holder SET until_us = {now_us} + v_ttl_us
             WHERE lock_key = v_key AND claim = v_claim AND broken IS NULL AND until_us > {now_us};
        END IF;
        IF ROW_COUNT() > 0 THEN
            SET v_answers = CONCAT(v_answers, 'renewed,');
        ELSE
            SET v_broken = NULL;
            SELECT broken INTO v_broken FROM lockstep_lock
             WHERE lock_key = v_key AND claim = v_claim AND until_us > {now_us};
            IF v_broken IS NULL THEN
                SELECT broken INTO v_broken FROM lockstep_holder
                 WHERE lock_key = v_key AND claim = v_claim AND until_us > {now_us};
            END IF;
            SET v_answers = CONCAT(v_answers, COALESCE(CONCAT('broken ', HEX(v_broken)), 'lost'), ',');
        END IF;
    END WHILE;
    COMMIT;
    SELECT v_answers AS answers;
END
