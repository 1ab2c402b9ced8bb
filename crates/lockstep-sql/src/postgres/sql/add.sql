-- Adds a holder to those of a lock, whose row the caller has locked. Answers with the row as it is
-- now; its token is the new holder's. A reader that joins readers has theirs: it says after which
-- writer they read.
CREATE OR REPLACE FUNCTION {schema}.lockstep_add_v1(
    p_held {schema}.lockstep_lock, p_claim uuid, p_owner uuid, p_label text, p_inbox text,
    p_weight integer, p_since_ms bigint, p_until_us bigint
) RETURNS {schema}.lockstep_lock LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    several CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    held {schema}.lockstep_lock;
BEGIN
    IF p_held.claim <> several THEN
        INSERT INTO {schema}.lockstep_holder
            (key, claim, token, owner, label, weight, inbox, since_ms, until_us, broken)
        VALUES (p_held.key, p_held.claim, p_held.token, p_held.owner, p_held.label, p_held.weight,
                p_held.inbox, p_held.since_ms, p_held.until_us, p_held.broken);
    END IF;
    UPDATE {schema}.lockstep_lock AS l
       SET token = l.token + CASE WHEN p_weight = 1 AND l.total = 2147483647 THEN 0 ELSE 1 END,
           claim = several, owner = several, label = '', weight = 0, inbox = NULL,
           until_us = 9223372036854775807, broken = NULL
     WHERE l.key = p_held.key RETURNING l.* INTO held;
    INSERT INTO {schema}.lockstep_holder
        (key, claim, token, owner, label, weight, inbox, since_ms, until_us)
    VALUES (p_held.key, p_claim, held.token, p_owner, p_label, p_weight, p_inbox, p_since_ms,
            p_until_us);
    RETURN held;
END $body$;
