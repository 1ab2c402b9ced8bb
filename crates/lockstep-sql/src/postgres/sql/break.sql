-- Breaks whoever holds the lock; false if nobody does. Without p_now the hold lives on to the end
-- of its lease and cannot be renewed; with p_now it passes on at once and the holder is told.
CREATE OR REPLACE FUNCTION {schema}.lockstep_break_v1(p_key text, p_reason text, p_now boolean)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    held {schema}.lockstep_lock;
    now_us bigint;
BEGIN
    SELECT l.* INTO held FROM {schema}.lockstep_lock AS l WHERE l.key = p_key FOR UPDATE;
    IF held.claim IS NULL THEN
        RETURN false;
    END IF;
    now_us := {now_us};
    IF held.until_us <= now_us THEN
        -- The one that is next is innocent.
        PERFORM {schema}.lockstep_fence_v1(p_key, held.token + 1);
        PERFORM {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, NULL);
        RETURN false;
    END IF;
    IF NOT p_now THEN
        UPDATE {schema}.lockstep_lock AS l SET broken = p_reason WHERE l.key = p_key;
        RETURN true;
    END IF;
    PERFORM {schema}.lockstep_fence_v1(p_key, held.token + 1);
    IF held.inbox IS NOT NULL THEN
        -- A notification holds less than 8000 bytes.
        PERFORM pg_notify(
            held.inbox,
            'lost ' || encode(uuid_send(held.claim), 'hex') || ' ' || left(p_reason, 1000)
        );
    END IF;
    PERFORM {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, NULL);
    RETURN true;
END $body$;
