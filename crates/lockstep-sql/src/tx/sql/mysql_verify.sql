INSERT INTO lockstep_fence (origin, `key`, token) VALUES ({origin}, {key}, {token})
ON DUPLICATE KEY UPDATE token = GREATEST(token, {token});
SELECT CAST(IF(token > {token}, CONCAT('stale ', token), 'ok') AS CHAR)
  FROM lockstep_fence WHERE origin = {origin} AND `key` = {key} FOR UPDATE
