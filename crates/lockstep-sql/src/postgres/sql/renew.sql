-- Extends each hold by its ttl from now, if it is still the claim's and neither run out nor broken.
-- Answers in order: 'renewed', 'broken <reason>', or NULL for a hold that is lost.
--
-- The rows are taken in the order of the arrays, which come sorted by key, so that two batches
-- cannot wait for each other in a circle; the settings keep the planner to that order.
CREATE OR REPLACE FUNCTION {schema}.lockstep_renew_v1(
    p_keys text[], p_claims uuid[], p_ttls_us bigint[]
) RETURNS text[] LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $body$
DECLARE
    answers text[] := array_fill(NULL::text, ARRAY[cardinality(p_keys)]);
    renewed integer := 0;
    n bigint;
    reason text;
BEGIN
    FOR n IN
        UPDATE {schema}.lockstep_lock AS l SET until_us = {now_us} + a.ttl_us
          FROM unnest(p_keys, p_claims, p_ttls_us) WITH ORDINALITY AS a (key, claim, ttl_us, n)
         WHERE l.key = a.key AND l.claim = a.claim AND l.broken IS NULL AND l.until_us > {now_us}
        RETURNING a.n
    LOOP
        answers[n] := 'renewed';
        renewed := renewed + 1;
    END LOOP;

    IF renewed < cardinality(p_keys) THEN
        FOR n IN
            UPDATE {schema}.lockstep_holder AS h SET until_us = {now_us} + a.ttl_us
              FROM unnest(p_keys, p_claims, p_ttls_us) WITH ORDINALITY AS a (key, claim, ttl_us, n)
             WHERE h.key = a.key AND h.claim = a.claim AND h.broken IS NULL
               AND h.until_us > {now_us}
            RETURNING a.n
        LOOP
            answers[n] := 'renewed';
            renewed := renewed + 1;
        END LOOP;
    END IF;

    -- Another look, with eyes of its own, for those that were not renewed.
    IF renewed < cardinality(p_keys) THEN
        FOR n, reason IN
            SELECT a.n, coalesce(l.broken, h.broken)
              FROM unnest(p_keys, p_claims) WITH ORDINALITY AS a (key, claim, n)
              LEFT JOIN {schema}.lockstep_lock AS l
                ON l.key = a.key AND l.claim = a.claim AND l.until_us > {now_us}
              LEFT JOIN {schema}.lockstep_holder AS h
                ON h.key = a.key AND h.claim = a.claim AND h.until_us > {now_us}
             WHERE coalesce(l.broken, h.broken) IS NOT NULL
        LOOP
            answers[n] := 'broken ' || reason;
        END LOOP;
    END IF;
    RETURN answers;
END $body$;
