-- Shuts out every token below p_token. To be called, with the token that comes next, by whatever
-- ends a hold that its holder did not give back, in the same transaction: it waits for the tx of that
-- holder that have been verified, and only then can anybody be granted the lock.
CREATE PROCEDURE IF NOT EXISTS lockstep_fence_v1(IN p_key VARBINARY(320), IN p_token BIGINT)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    INSERT INTO lockstep_fence (origin, `key`, token) VALUES ('', p_key, p_token)
    ON DUPLICATE KEY UPDATE token = GREATEST(token, p_token);
END
