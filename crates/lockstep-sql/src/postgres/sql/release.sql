-- Gives back a hold that somebody waits for, or a place in the queue; false if there was neither.
-- See give_back.sql.
CREATE OR REPLACE FUNCTION {schema}.lockstep_release_v1(p_key text, p_claim uuid)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    held {schema}.lockstep_lock;
    now_us bigint;
    released boolean;
BEGIN
    SELECT l.* INTO held FROM {schema}.lockstep_lock AS l WHERE l.key = p_key FOR UPDATE;
    IF held.claim IS NULL THEN
        RETURN false;
    END IF;
    now_us := {now_us};
    IF held.claim = p_claim AND held.until_us > now_us THEN
        PERFORM {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, p_claim);
        RETURN true;
    END IF;
    DELETE FROM {schema}.lockstep_waiter AS w WHERE w.claim = p_claim AND w.key = p_key;
    released := FOUND;
    IF held.until_us <= now_us THEN
        PERFORM {schema}.lockstep_fence_v1(p_key, held.token + 1);
        PERFORM {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, p_claim);
    END IF;
    RETURN released;
END $body$;
