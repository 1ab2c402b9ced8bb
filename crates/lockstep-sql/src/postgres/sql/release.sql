-- Gives back a hold that somebody waits for or shares, all but a reader's share of it (p_downgrade),
-- or a place in the queue; false if there was neither. See give_back.sql.
CREATE OR REPLACE FUNCTION {schema}.lockstep_release_v1(
    p_key text, p_claim uuid, p_downgrade boolean
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    several CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    held {schema}.lockstep_lock;
    before bigint;
    now_us bigint;
    setting text;
    released boolean := false;
BEGIN
    IF NOT p_downgrade AND {schema}.lockstep_leave_others_v1(p_key, p_claim) THEN
        RETURN true;
    END IF;
    SELECT l.* INTO held FROM {schema}.lockstep_lock AS l WHERE l.key = p_key FOR UPDATE;
    IF held.claim IS NULL THEN
        RETURN false;
    END IF;
    PERFORM {schema}.lockstep_alone_v1(held);
    now_us := {now_us};
    before := held.turn;

    IF held.claim = p_claim AND held.until_us > now_us THEN
        IF NOT p_downgrade THEN
            PERFORM {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, p_claim);
            RETURN true;
        END IF;
        IF held.total = 2147483647 THEN
            UPDATE {schema}.lockstep_lock AS l SET weight = 1
             WHERE l.key = p_key RETURNING l.* INTO held;
            released := true;
        END IF;
    ELSIF held.claim = several AND p_downgrade THEN
        PERFORM FROM {schema}.lockstep_holder AS h
          WHERE h.key = p_key AND h.claim = p_claim AND h.until_us > now_us
            AND held.total = 2147483647;
        released := FOUND;
    ELSIF held.claim = several THEN
        DELETE FROM {schema}.lockstep_holder AS h
         WHERE h.key = p_key AND h.claim = p_claim AND h.until_us > now_us;
        released := FOUND;
    END IF;
    IF NOT released AND NOT p_downgrade THEN
        -- A place whose lease has run out is not there any more, forgotten or not.
        DELETE FROM {schema}.lockstep_waiter AS w WHERE w.claim = p_claim AND w.key = p_key
        RETURNING w.until_us > now_us INTO released;
        released := coalesce(released, false);
    END IF;

    IF held.until_us <= now_us THEN
        PERFORM {schema}.lockstep_fence_v1(p_key, held.token + 1);
        held := {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, NULL);
    ELSIF held.weight < held.total THEN
        held := {schema}.lockstep_heal_v1(held, now_us, NULL);
    END IF;
    IF held.claim IS NULL OR held.turn = before THEN
        -- Nobody was granted anything: see give_back.sql.
        setting := set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN released;
END $body$;
