-- Lockstep's locks in one SQLite file, layout 2.

-- One row: which boot of the machine the leases belong to (until_ns counts from it), and the
-- upper half of all tokens. The state of that epoch: 0 used up, 1 raised but perhaps not on the
-- disk yet, 2 on the disk.
CREATE TABLE lockstep_meta (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    boot  TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    state INTEGER NOT NULL,
    syncs INTEGER NOT NULL
) STRICT;

INSERT INTO lockstep_meta (id, boot, epoch, state, syncs) VALUES (1, '', 0, 0, 0);

-- A row stays when its lock is free (claim is null): its token must only grow. One holder, whatever
-- its share, stands in this row; several stand in lockstep_holder, and here the claim is all zeros.
-- Weight and total are what lockstep_lock::Share says: 2147483647 both, if exclusive.
CREATE TABLE lockstep_lock (
    key      TEXT NOT NULL COLLATE BINARY PRIMARY KEY,
    token    INTEGER NOT NULL,
    claim    BLOB,
    owner    BLOB,
    label    TEXT,
    since_ms INTEGER,
    until_ns INTEGER,
    inbox    BLOB,
    broken   TEXT,
    weight   INTEGER NOT NULL DEFAULT 2147483647,
    total    INTEGER NOT NULL DEFAULT 2147483647
) STRICT, WITHOUT ROWID;

-- The holders of a lock that several hold together, in the order of their grants.
CREATE TABLE lockstep_holder (
    key      TEXT NOT NULL COLLATE BINARY,
    seq      INTEGER NOT NULL,
    token    INTEGER NOT NULL,
    claim    BLOB NOT NULL,
    owner    BLOB NOT NULL,
    label    TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    inbox    BLOB,
    broken   TEXT,
    weight   INTEGER NOT NULL,
    PRIMARY KEY (key, claim)
) STRICT, WITHOUT ROWID;

-- Who waits, in the order of seq within a key. A free lock has no waiters.
CREATE TABLE lockstep_waiter (
    key      TEXT NOT NULL COLLATE BINARY,
    seq      INTEGER NOT NULL,
    claim    BLOB NOT NULL,
    owner    BLOB NOT NULL,
    label    TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    ttl_ns   INTEGER NOT NULL,
    inbox    BLOB,
    weight   INTEGER NOT NULL DEFAULT 2147483647,
    PRIMARY KEY (key, seq),
    UNIQUE (key, claim)
) STRICT, WITHOUT ROWID;
CREATE INDEX lockstep_waiter_owner ON lockstep_waiter (owner);

-- "Lstp": how a file of ours is told from any other; and the layout.
PRAGMA application_id = 0x4C737470;
PRAGMA user_version = 2;
