-- Ends the hold on a lock whose row the caller has locked, and grants it to the first waiter whose
-- lease lives, and to those that fit beside it; waiters before that one are dead and forgotten.
-- Answers with the row as it is now.
-- The asker is not notified: its own answer will say it.
CREATE OR REPLACE FUNCTION {schema}.lockstep_pass_on_v1(
    p_key text, p_turn bigint, p_now_us bigint, p_asker uuid
) RETURNS {schema}.lockstep_lock LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    held {schema}.lockstep_lock;
BEGIN
    WITH next AS MATERIALIZED (
        SELECT w.* FROM {schema}.lockstep_waiter AS w
         WHERE w.key = p_key AND w.seq > p_turn AND w.until_us > p_now_us
         ORDER BY w.seq LIMIT 1
    ), gone AS (
        DELETE FROM {schema}.lockstep_waiter AS w USING next
         WHERE w.key = p_key AND w.seq > p_turn AND w.seq <= next.seq
    )
    UPDATE {schema}.lockstep_lock AS l
       SET token = l.token + 1, claim = next.claim, owner = next.owner, label = next.label,
           weight = next.weight, inbox = next.inbox, since_ms = p_now_us / 1000, until_us = p_now_us + next.ttl_us,
           broken = NULL, turn = next.seq
      FROM next
     WHERE l.key = p_key RETURNING l.* INTO held;
    IF FOUND THEN
        IF held.inbox IS NOT NULL AND held.claim IS DISTINCT FROM p_asker THEN
            PERFORM pg_notify(
                held.inbox,
                'granted ' || encode(uuid_send(held.claim), 'hex') || ' ' || held.token
            );
        END IF;
        IF held.weight < held.total THEN
            held := {schema}.lockstep_join_v1(held, p_now_us, p_asker);
        END IF;
        RETURN held;
    END IF;

    DELETE FROM {schema}.lockstep_waiter AS w WHERE w.key = p_key AND w.seq > p_turn;
    UPDATE {schema}.lockstep_lock AS l SET claim = NULL, turn = l.tail
     WHERE l.key = p_key RETURNING l.* INTO held;
    RETURN held;
END $body$;
