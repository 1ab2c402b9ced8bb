-- Called in a user's tx: NULL if a guard with this token may write until the tx ends, else the
-- token that is in its way.
CREATE OR REPLACE FUNCTION {schema}.lockstep_verify_v1(
    p_store uuid, p_origin text, p_key text, p_row_key text, p_token bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    seen bigint;
BEGIN
    IF p_store = {schema}.lockstep_store_v1() THEN
        -- A lock of this database. Its fence is only read, and locked so that nobody can take
        -- the lock over before this tx has ended; several tx of one holder go side by side.
        LOOP
            SELECT f.token INTO seen FROM {schema}.lockstep_fence AS f
             WHERE f.origin = '' AND f.key = p_row_key FOR SHARE;
            EXIT WHEN FOUND;
            INSERT INTO {schema}.lockstep_fence (origin, key, token) VALUES ('', p_row_key, 0)
            ON CONFLICT DO NOTHING;
        END LOOP;
    ELSE
        SELECT f.token INTO seen FROM {schema}.lockstep_fence AS f
         WHERE f.origin = p_origin AND f.key = p_key AND f.token >= p_token FOR SHARE;
        IF NOT FOUND THEN
            INSERT INTO {schema}.lockstep_fence AS f (origin, key, token)
            VALUES (p_origin, p_key, p_token)
            ON CONFLICT (origin, key) DO UPDATE SET token = excluded.token
             WHERE f.token <= excluded.token
            RETURNING f.token INTO seen;
            IF NOT FOUND THEN
                -- Raised above ours while we waited for the row.
                SELECT f.token INTO seen FROM {schema}.lockstep_fence AS f
                 WHERE f.origin = p_origin AND f.key = p_key;
            END IF;
        END IF;
    END IF;
    RETURN CASE WHEN seen > p_token THEN seen END;
END $body$;
