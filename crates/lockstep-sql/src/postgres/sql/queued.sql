-- The answer to a claim that has a place in the queue behind its holders.
CREATE OR REPLACE FUNCTION {schema}.lockstep_queued_v1(
    p_key text, p_place bigint, p_now_us bigint, p_held {schema}.lockstep_lock
) RETURNS text LANGUAGE plpgsql STABLE AS $body$
DECLARE
    ahead bigint;
    until_us bigint := p_held.until_us;
BEGIN
    IF p_held.claim = '00000000-0000-0000-0000-000000000000' THEN
        SELECT min(CASE WHEN starts_with(h.inbox, 'lockstepb_')
                        THEN least(h.until_us, p_now_us + 500000) ELSE h.until_us END)
          INTO until_us FROM {schema}.lockstep_holder AS h
         WHERE h.key = p_key;
    END IF;
    IF starts_with(p_held.inbox, 'lockstepb_') THEN
        -- Who is next had better look whether its connection still lives.
        until_us := least(until_us, p_now_us + 500000);
    END IF;
    SELECT count(*) INTO ahead FROM (
        SELECT FROM {schema}.lockstep_waiter AS b
         WHERE b.key = p_key AND b.seq > p_held.turn AND b.seq < p_place AND b.until_us > p_now_us
         LIMIT 16
    ) AS before;
    IF ahead = 16 THEN
        -- Far from the head an estimate will do, and does not cost more the longer the queue is.
        ahead := greatest(ahead, least(100, p_place - p_held.turn - 1));
    END IF;
    RETURN 'queued ' || p_held.token || ' ' || ahead || ' ' || greatest(0, until_us - p_now_us);
END $body$;
