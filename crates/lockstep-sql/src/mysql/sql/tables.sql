-- Lockstep on MariaDB and MySQL, layout 1.
--
-- A procedure that has been released is never changed: a fix gets the next number, so that two
-- releases of Lockstep can share these tables.
--
-- What a user needs that only uses locks:
--   GRANT SELECT, INSERT, UPDATE ON lockstep_lock TO user;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON lockstep_holder TO user;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON lockstep_waiter TO user;
--   GRANT EXECUTE ON database.* TO user;
-- The procedures run with the rights of who calls them. A waiter is woken at once only by a
-- release of the same user: MySQL lets nobody interrupt another user's statement without CONNECTION
-- ADMIN (CONNECTION_ADMIN on MySQL).

-- One row per lock that was ever asked for. It stays when the lock is free: its token must only
-- grow. A lock without holder (the claim is all ones, not NULL: a row whose length stays the same is
-- changed in its place) has no waiters; every procedure keeps it so, and what else stands in the row
-- then means nothing.
-- Those who hold a lock together take no more than its total. One holder, whatever its weight, stands
-- in this row; several stand in lockstep_holder, and here the claim is all zeros, the weight 0, and
-- the lease without end.
-- Keys are bytes: no collation folds two of them together, and 320 of them fit every index.
CREATE TABLE IF NOT EXISTS lockstep_lock (
    lock_key VARBINARY(320) NOT NULL,          -- tenant/name
    token    BIGINT NOT NULL,
    claim    BINARY(16) NOT NULL,
    owner    BINARY(16) NOT NULL,
    label    VARCHAR(200) NOT NULL,
    weight   INT NOT NULL,                     -- what the holder takes of the total: all, if exclusive
    total    INT NOT NULL,                     -- 2147483647 if the lock is not made of permits
    since_ms BIGINT NOT NULL,
    until_us BIGINT NOT NULL,                  -- of this server's clock, like every time here
    broken   TEXT,
    tail     BIGINT NOT NULL DEFAULT 0,        -- a place in the queue, and nobody waits unless the turn
                                               -- is before it; who joins others may be behind it
    turn     BIGINT NOT NULL DEFAULT 0,        -- the last that was served; at the tail, nobody waits
    PRIMARY KEY (lock_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin;

-- The holders of a lock that several hold together, in the order of their grants.
CREATE TABLE IF NOT EXISTS lockstep_holder (
    lock_key VARBINARY(320) NOT NULL,
    claim    BINARY(16) NOT NULL,
    seq      BIGINT NOT NULL AUTO_INCREMENT,
    token    BIGINT NOT NULL,
    owner    BINARY(16) NOT NULL,
    label    VARCHAR(200) NOT NULL,
    weight   INT NOT NULL,
    since_ms BIGINT NOT NULL,
    until_us BIGINT NOT NULL,
    broken   TEXT,
    PRIMARY KEY (lock_key, claim),
    UNIQUE KEY lockstep_holder_seq (seq)
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin;

-- The queues. Whoever locks a row here does so through the primary key and never through the other
-- indexes: two who come from different sides would wait for each other.
CREATE TABLE IF NOT EXISTS lockstep_waiter (
    lock_key VARBINARY(320) NOT NULL,
    seq      BIGINT NOT NULL AUTO_INCREMENT,   -- the place; those of all queues are of one series
    claim    BINARY(16) NOT NULL,
    owner    BINARY(16) NOT NULL,
    label    VARCHAR(200) NOT NULL,
    weight   INT NOT NULL,
    inbox    BINARY(16),                       -- whose listener to wake
    ttl_us   BIGINT NOT NULL,
    since_ms BIGINT NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (lock_key, seq),
    UNIQUE KEY lockstep_waiter_seq (seq),
    UNIQUE KEY lockstep_waiter_claim (claim, lock_key),
    KEY lockstep_waiter_owner (owner)          -- what somebody waits for
) ENGINE = InnoDB DEFAULT CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin;
