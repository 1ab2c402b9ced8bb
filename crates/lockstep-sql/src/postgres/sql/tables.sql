-- Lockstep on PostgreSQL, layout 1.
--
-- A function that has been released is never changed: a fix gets the next number, so that two
-- releases of Lockstep can share these tables.
--
-- What a role needs that only uses locks:
--   GRANT USAGE ON SCHEMA {schema} TO role;
--   GRANT SELECT, INSERT, UPDATE ON {schema}.lockstep_lock TO role;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.lockstep_holder TO role;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.lockstep_waiter TO role;
-- The functions run with the rights of who calls them, and everyone may call them.

DO $body$ BEGIN
    IF to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END $body$;

-- One row per lock that was ever asked for. It stays when the lock is free: its token must only
-- grow. A lock without holder (claim IS NULL) has no waiters; every function keeps it so, and what
-- else stands in the row then means nothing.
-- Those who hold a lock together take no more than its total. One holder, whatever its weight, stands
-- in this row; several stand in lockstep_holder, and here the claim is all zeros, the weight 0, and
-- the lease without end.
-- Nothing but the key is indexed, and pages keep some room, so that changes stay in the page.
CREATE TABLE IF NOT EXISTS {schema}.lockstep_lock (
    key      text COLLATE "C" PRIMARY KEY,   -- tenant/name
    token    bigint NOT NULL,
    claim    uuid,
    owner    uuid NOT NULL,
    label    text NOT NULL,
    weight   integer NOT NULL,               -- what the holder takes of the total: all, if exclusive
    total    integer NOT NULL,               -- 2147483647 if the lock is not made of permits
    inbox    text,                           -- where the holder listens
    since_ms bigint NOT NULL,
    until_us bigint NOT NULL,                -- of this server's clock, like every time here
    broken   text,
    tail     bigint NOT NULL DEFAULT 0,      -- the last place in the queue that was given out
    turn     bigint NOT NULL DEFAULT 0       -- the last that was served; at the tail, nobody waits
) WITH (fillfactor = 50);

-- The holders of a lock that several hold together, in the order of their grants.
CREATE TABLE IF NOT EXISTS {schema}.lockstep_holder (
    key      text COLLATE "C" NOT NULL,
    claim    uuid NOT NULL,
    seq      bigint GENERATED ALWAYS AS IDENTITY,
    token    bigint NOT NULL,
    owner    uuid NOT NULL,
    label    text NOT NULL,
    weight   integer NOT NULL,
    inbox    text,
    since_ms bigint NOT NULL,
    until_us bigint NOT NULL,
    broken   text,
    PRIMARY KEY (key, claim)
) WITH (fillfactor = 50);

-- The queues. Who reads one starts behind the lock's turn: the index entries of those that were served
-- remain until the next vacuum, and stepping over them would take longer and longer.
CREATE TABLE IF NOT EXISTS {schema}.lockstep_waiter (
    key      text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL,                -- the place
    claim    uuid NOT NULL,
    owner    uuid NOT NULL,
    label    text NOT NULL,
    weight   integer NOT NULL,
    inbox    text,
    ttl_us   bigint NOT NULL,
    since_ms bigint NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (key, seq),
    UNIQUE (claim, key)
) WITH (fillfactor = 70);

-- What somebody waits for.
CREATE INDEX IF NOT EXISTS lockstep_waiter_owner ON {schema}.lockstep_waiter (owner);
