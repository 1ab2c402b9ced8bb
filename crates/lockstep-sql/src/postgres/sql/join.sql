-- Lets waiters in beside those who hold a lock, whose row the caller has locked: from the head of
-- the queue, as long as they fit. Dead ones are forgotten. Answers with the row as it is now; if its
-- turn is at its tail, nobody waits. The asker is not notified: its own answer will say it.
CREATE OR REPLACE FUNCTION {schema}.lockstep_join_v1(
    p_held {schema}.lockstep_lock, p_now_us bigint, p_asker uuid
) RETURNS {schema}.lockstep_lock LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    several CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    held {schema}.lockstep_lock := p_held;
    next {schema}.lockstep_waiter;
    used bigint := held.weight;
BEGIN
    IF held.turn = held.tail THEN
        RETURN held;
    END IF;
    IF held.claim = several THEN
        SELECT sum(h.weight) INTO used FROM {schema}.lockstep_holder AS h WHERE h.key = held.key;
    END IF;
    LOOP
        SELECT w.* INTO next FROM {schema}.lockstep_waiter AS w
         WHERE w.key = held.key AND w.seq > held.turn AND w.until_us > p_now_us
         ORDER BY w.seq LIMIT 1;
        IF NOT FOUND THEN
            DELETE FROM {schema}.lockstep_waiter AS w WHERE w.key = held.key AND w.seq > held.turn;
            UPDATE {schema}.lockstep_lock AS l SET turn = l.tail
             WHERE l.key = held.key RETURNING l.* INTO held;
            RETURN held;
        END IF;
        EXIT WHEN used + next.weight > held.total;
        DELETE FROM {schema}.lockstep_waiter AS w
         WHERE w.key = held.key AND w.seq > held.turn AND w.seq <= next.seq;
        held := {schema}.lockstep_add_v1(
            held, next.claim, next.owner, next.label, next.inbox, next.weight, p_now_us / 1000,
            p_now_us + next.ttl_us
        );
        held.turn := next.seq;
        used := used + next.weight;
        IF next.inbox IS NOT NULL AND next.claim IS DISTINCT FROM p_asker THEN
            PERFORM pg_notify(
                next.inbox,
                'granted ' || encode(uuid_send(next.claim), 'hex') || ' ' || held.token
            );
        END IF;
    END LOOP;
    IF held.turn <> p_held.turn THEN
        UPDATE {schema}.lockstep_lock AS l SET turn = held.turn WHERE l.key = held.key;
    END IF;
    RETURN held;
END $body$;
