INSERT INTO lockstep_fence (origin, key, token) VALUES ({origin}, {key}, {token})
ON CONFLICT (origin, key) DO UPDATE SET token = max(token, excluded.token)
RETURNING CASE WHEN token > {token} THEN 'stale ' || token ELSE 'ok' END
