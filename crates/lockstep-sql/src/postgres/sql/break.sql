-- Breaks whoever holds the lock; false if nobody does. Without p_now the holds live on to the end
-- of their leases and cannot be renewed; with p_now the lock passes on at once and those who held it
-- are told.
CREATE OR REPLACE FUNCTION {schema}.lockstep_break_v1(p_key text, p_reason text, p_now boolean)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    several CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    held {schema}.lockstep_lock;
    lost {schema}.lockstep_holder;
    now_us bigint;
    broken boolean := true;
BEGIN
    SELECT l.* INTO held FROM {schema}.lockstep_lock AS l WHERE l.key = p_key FOR UPDATE;
    IF held.claim IS NULL THEN
        RETURN false;
    END IF;
    PERFORM {schema}.lockstep_alone_v1(held);
    now_us := {now_us};
    IF held.until_us <= now_us THEN
        -- The one that is next is innocent.
        PERFORM {schema}.lockstep_fence_v1(p_key, held.token + 1);
        PERFORM {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, NULL);
        RETURN false;
    END IF;
    IF NOT p_now THEN
        IF held.claim = several THEN
            UPDATE {schema}.lockstep_holder AS h SET broken = p_reason
             WHERE h.key = p_key AND h.until_us > now_us;
            broken := FOUND;
        ELSE
            UPDATE {schema}.lockstep_lock AS l SET broken = p_reason
             WHERE l.key = p_key RETURNING l.* INTO held;
        END IF;
        IF held.weight < held.total THEN
            PERFORM {schema}.lockstep_heal_v1(held, now_us, NULL);
        END IF;
        RETURN broken;
    END IF;
    PERFORM {schema}.lockstep_fence_v1(p_key, held.token + 1);

    -- A notification holds less than 8000 bytes.
    IF held.claim = several THEN
        broken := false;
        FOR lost IN
            SELECT h.* FROM {schema}.lockstep_holder AS h
             WHERE h.key = p_key AND h.until_us > now_us ORDER BY h.seq
        LOOP
            broken := true;
            CONTINUE WHEN lost.inbox IS NULL;
            PERFORM pg_notify(
                lost.inbox,
                'lost ' || encode(uuid_send(lost.claim), 'hex') || ' ' || left(p_reason, 1000)
            );
        END LOOP;
        DELETE FROM {schema}.lockstep_holder AS h WHERE h.key = p_key;
    ELSIF held.inbox IS NOT NULL THEN
        PERFORM pg_notify(
            held.inbox,
            'lost ' || encode(uuid_send(held.claim), 'hex') || ' ' || left(p_reason, 1000)
        );
    END IF;
    PERFORM {schema}.lockstep_pass_on_v1(p_key, held.turn, now_us, NULL);
    RETURN broken;
END $body$;
