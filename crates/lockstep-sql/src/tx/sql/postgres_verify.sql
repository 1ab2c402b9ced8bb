SELECT coalesce('stale ' || lockstep_verify_v1({store}, {origin}, {key}, {row_key}, {token}), 'ok')
