SET @lockstep_here = EXISTS (SELECT 1 FROM lockstep_store WHERE id = {id} AND home = {home});
INSERT INTO lockstep_fence (origin, `key`, token)
VALUES (IF(@lockstep_here, '', {origin}), IF(@lockstep_here, {row_key}, {key}), IF(@lockstep_here, 0, {token}))
ON DUPLICATE KEY UPDATE token = IF(@lockstep_here, token, GREATEST(token, {token}));
SELECT CAST(IF(token > {token}, CONCAT('stale ', token), 'ok') AS CHAR) FROM lockstep_fence
 WHERE origin = IF(@lockstep_here, '', {origin}) AND `key` = IF(@lockstep_here, {row_key}, {key}) FOR UPDATE
