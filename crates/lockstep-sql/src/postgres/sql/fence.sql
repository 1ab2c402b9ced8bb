-- What a user's own tx meets: see the module `tx`.
--
--   GRANT SELECT ON {schema}.lockstep_store TO role;
--   GRANT SELECT, INSERT, UPDATE ON {schema}.lockstep_fence TO role;

-- Which database this is, so that a guard can be told from one of another. A copy of the database
-- has the same row but another home, and is nobody until the next migration names it anew: its
-- fences do not follow the locks of the original.
CREATE TABLE IF NOT EXISTS {schema}.lockstep_store (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    id   uuid NOT NULL,
    home text
);

-- origin '': the first token that is not yet out of date, of locks in this database. Only a hold that
-- ended without being given back raises it, so grants and renewals as they should be cost
-- nothing. Other origins: the highest token that a tx here has seen of a lock kept elsewhere.
CREATE TABLE IF NOT EXISTS {schema}.lockstep_fence (
    origin text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    token  bigint NOT NULL,
    PRIMARY KEY (origin, key)
) WITH (fillfactor = 70);

-- NULL where the server does not say which it is; then every guard is one from elsewhere.
CREATE OR REPLACE FUNCTION {schema}.lockstep_home_v1() RETURNS text LANGUAGE plpgsql STABLE AS $body$
BEGIN
    IF NOT has_function_privilege('pg_control_system()', 'EXECUTE') THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT c.system_identifier FROM pg_control_system() AS c) || '/'
        || (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database());
END $body$;

CREATE OR REPLACE FUNCTION {schema}.lockstep_store_v1() RETURNS uuid LANGUAGE sql STABLE AS $body$
    SELECT s.id FROM {schema}.lockstep_store AS s WHERE s.home = {schema}.lockstep_home_v1()
$body$;

INSERT INTO {schema}.lockstep_store AS s (id, home)
VALUES (gen_random_uuid(), {schema}.lockstep_home_v1())
ON CONFLICT (one) DO UPDATE SET id = excluded.id, home = excluded.home
 WHERE s.home IS DISTINCT FROM excluded.home;

-- Shuts out every token below p_token. To be called, with the token that comes next, by whatever
-- ends a hold that its holder did not give back, in the same tx: it waits for the tx of that
-- holder that have been verified, and only then can anybody be granted the lock.
CREATE OR REPLACE FUNCTION {schema}.lockstep_fence_v1(p_key text, p_token bigint)
RETURNS void LANGUAGE sql VOLATILE AS $body$
    INSERT INTO {schema}.lockstep_fence AS f (origin, key, token) VALUES ('', p_key, p_token)
    ON CONFLICT (origin, key) DO UPDATE SET token = excluded.token WHERE f.token < excluded.token
$body$;
