-- Gives back a hold or a place in the queue; false if there was neither.
CREATE OR REPLACE FUNCTION {schema}.lockstep_release_v1(p_key text, p_claim uuid)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    held {schema}.lockstep_lock;
    waited_for boolean;
    turn bigint;
    now_us bigint;
    released boolean;
BEGIN
    -- Locks the row, and frees it in the same statement if nobody waits. Who joins the queue says
    -- so in this very row first, so a release that had to wait for the row cannot miss it.
    UPDATE {schema}.lockstep_lock AS l SET claim = CASE WHEN l.turn < l.tail THEN l.claim END
     WHERE l.key = p_key AND l.claim = p_claim AND l.until_us > {now_us}
    RETURNING l.claim IS NOT NULL, l.turn INTO waited_for, turn;
    IF FOUND THEN
        IF waited_for THEN
            PERFORM {schema}.lockstep_pass_on_v1(p_key, turn, {now_us}, p_claim);
        END IF;
        RETURN true;
    END IF;

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
        PERFORM {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, p_claim);
    END IF;
    RETURN released;
END $body$;
