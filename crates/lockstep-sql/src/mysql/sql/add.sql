-- Adds a holder to those of a lock, whose row the caller has locked. A reader that joins readers has
-- their token: it says after which writer they read.
CREATE PROCEDURE IF NOT EXISTS lockstep_add_v1(
    IN p_key VARBINARY(320), IN p_claim BINARY(16), IN p_owner BINARY(16),
    IN p_label VARCHAR(200) CHARACTER SET utf8mb4, IN p_weight INT, IN p_now_us BIGINT,
    IN p_ttl_us BIGINT
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    INSERT INTO lockstep_holder
        (lock_key, claim, token, owner, label, weight, since_ms, until_us, broken)
    SELECT lock_key, claim, token, owner, label, weight, since_ms, until_us, broken
      FROM lockstep_lock WHERE lock_key = p_key AND claim <> {several};
    UPDATE lockstep_lock
       SET token = token + IF(p_weight = 1 AND total = 2147483647, 0, 1), claim = {several},
           owner = {several}, label = '', weight = 0, until_us = 9223372036854775807, broken = NULL
     WHERE lock_key = p_key;
    INSERT INTO lockstep_holder
        (lock_key, claim, token, owner, label, weight, since_ms, until_us)
    SELECT lock_key, p_claim, token, p_owner, p_label, p_weight, p_now_us DIV 1000,
           p_now_us + p_ttl_us
      FROM lockstep_lock WHERE lock_key = p_key;
END
