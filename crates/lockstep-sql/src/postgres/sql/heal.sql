-- Heals a lock that is shared, or could be, and whose row the caller has locked: leases that have
-- run out end, and waiters are let in as long as they fit. Answers with the row as it is now.
--
-- A renewal that comes between keeps its holder: it is either seen here or finds its row gone.
CREATE OR REPLACE FUNCTION {schema}.lockstep_heal_v1(
    p_held {schema}.lockstep_lock, p_now_us bigint, p_asker uuid
) RETURNS {schema}.lockstep_lock LANGUAGE plpgsql VOLATILE AS $body$
BEGIN
    IF p_held.claim = '00000000-0000-0000-0000-000000000000' THEN
        DELETE FROM {schema}.lockstep_holder AS h
         WHERE h.key = p_held.key AND (
               h.until_us <= p_now_us
               OR h.claim IS DISTINCT FROM p_asker AND {schema}.lockstep_gone_v1(h.inbox));
        PERFORM FROM {schema}.lockstep_holder AS h WHERE h.key = p_held.key LIMIT 1;
        IF NOT FOUND THEN
            -- One of them may not have given its share back, now or earlier; as long as others had
            -- theirs, with the same token, nobody was shut out.
            PERFORM {schema}.lockstep_fence_v1(p_held.key, p_held.token + 1);
            RETURN {schema}.lockstep_pass_on_v1(p_held.key, p_held.turn, p_now_us, p_asker);
        END IF;
    END IF;
    RETURN {schema}.lockstep_join_v1(p_held, p_now_us, p_asker);
END $body$;
