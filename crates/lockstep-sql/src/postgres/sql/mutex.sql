--   GRANT SELECT, INSERT, UPDATE ON {schema}.lockstep_mutex TO role;

-- Rows to lock in a user's tx. They say nothing else and stay.
CREATE TABLE IF NOT EXISTS {schema}.lockstep_mutex (
    key text COLLATE "C" PRIMARY KEY
);

-- Locks the row of a key, which comes into being at the first call, until the tx ends; false if
-- another tx has it for longer than p_wait_ms. NULL waits as long as the tx's own settings allow.
-- A refusal undoes only what happened in here, so that the tx can go on.
CREATE OR REPLACE FUNCTION {schema}.lockstep_mutex_v1(p_key text, p_wait_ms bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    IF p_wait_ms IS NULL THEN
        LOOP
            PERFORM FROM {schema}.lockstep_mutex AS m WHERE m.key = p_key FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO {schema}.lockstep_mutex (key) VALUES (p_key) ON CONFLICT DO NOTHING;
        END LOOP;
        RETURN true;
    END IF;

    BEGIN
        -- Who calls for the first time may meet a row that is not committed yet, and NOWAIT means
        -- nothing to an insert: the shortest time-out there is stands for it. 0 would be none.
        PERFORM set_config('lock_timeout', greatest(p_wait_ms, 1)::text, true);
        LOOP
            IF p_wait_ms = 0 THEN
                PERFORM FROM {schema}.lockstep_mutex AS m WHERE m.key = p_key FOR UPDATE NOWAIT;
            ELSE
                PERFORM FROM {schema}.lockstep_mutex AS m WHERE m.key = p_key FOR UPDATE;
            END IF;
            EXIT WHEN FOUND;
            INSERT INTO {schema}.lockstep_mutex (key) VALUES (p_key) ON CONFLICT DO NOTHING;
        END LOOP;
        PERFORM set_config('lock_timeout', before, true);
        RETURN true;
    EXCEPTION WHEN lock_not_available THEN
        -- The setting went back with the rest.
        RETURN false;
    END;
END $body$;
