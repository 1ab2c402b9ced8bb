-- Readers come and go beside each other without standing in line for the lock's row, which every
-- grant keeps locked until it is on the disk: as long as several hold the lock and nobody waits, nothing
-- in that row changes, and each has only a row of its own to write. An advisory lock on the name
-- says so: those who come and go share it, and whoever finds several holders and is about to decide
-- anything about them has it alone (lockstep_alone_v1), in the order of asking. A row lock of the
-- sharing kind would not do: readers that follow each other closely would keep a writer out for ever.
--
-- Both answer NULL if it is not so simple. Then the advisory lock must be let go first, or two of
-- them would wait for each other; that is what the inner blocks and their exceptions are for.

-- A reader's way in; the token of those it joined.
CREATE OR REPLACE FUNCTION {schema}.lockstep_join_readers_v1(
    p_key text, p_claim uuid, p_owner uuid, p_label text, p_inbox text, p_ttl_us bigint
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    several CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    common bigint;
    now_us bigint;
BEGIN
    PERFORM FROM {schema}.lockstep_lock AS l
      WHERE l.key = p_key AND l.claim = several AND l.total = 2147483647 AND l.turn = l.tail;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_key, 1));
        now_us := {now_us};
        -- If all of them are dead, the next grant is a new one.
        SELECT l.token INTO STRICT common FROM {schema}.lockstep_lock AS l
         WHERE l.key = p_key AND l.claim = several AND l.total = 2147483647 AND l.turn = l.tail
           AND EXISTS (SELECT FROM {schema}.lockstep_holder AS h
                        WHERE h.key = p_key AND h.until_us > now_us);
        INSERT INTO {schema}.lockstep_holder
            (key, claim, token, owner, label, weight, inbox, since_ms, until_us)
        VALUES (p_key, p_claim, common, p_owner, p_label, 1, p_inbox, now_us / 1000,
                now_us + p_ttl_us);
        RETURN common;
    EXCEPTION WHEN no_data_found OR unique_violation THEN
        RETURN NULL;
    END;
END $body$;

-- The way out, of readers and of those who have permits; true.
CREATE OR REPLACE FUNCTION {schema}.lockstep_leave_others_v1(p_key text, p_claim uuid)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $body$
DECLARE
    several CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    setting text;
BEGIN
    PERFORM FROM {schema}.lockstep_lock AS l
      WHERE l.key = p_key AND l.claim = several AND l.turn = l.tail;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(hashtextextended(p_key, 1));
        DELETE FROM {schema}.lockstep_holder AS h USING {schema}.lockstep_lock AS l
         WHERE h.key = p_key AND h.claim = p_claim AND h.until_us > {now_us}
           AND l.key = p_key AND l.claim = several AND l.turn = l.tail;
        IF NOT FOUND THEN
            RAISE no_data_found;
        END IF;
        -- Nobody was granted anything: see give_back.sql. If it was the last one, whoever asks next
        -- finds that nobody is left.
        setting := set_config('synchronous_commit', 'off', true);
        RETURN true;
    EXCEPTION WHEN no_data_found THEN
        RETURN NULL;
    END;
END $body$;

-- Waits for those who come and go, and keeps others from it until the end of the tx. To be called
-- with the lock's row locked, before anything about its several holders is read.
CREATE OR REPLACE FUNCTION {schema}.lockstep_alone_v1(p_held {schema}.lockstep_lock)
RETURNS void LANGUAGE plpgsql VOLATILE AS $body$
BEGIN
    IF p_held.claim = '00000000-0000-0000-0000-000000000000' THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(p_held.key, 1));
    END IF;
END $body$;
