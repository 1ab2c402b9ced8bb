-- Lockstep's locks in one SQLite file, layout 1.

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

-- A row stays when its lock is free (claim is null): its token must only grow.
CREATE TABLE lockstep_lock (
    key      TEXT NOT NULL COLLATE BINARY PRIMARY KEY,
    token    INTEGER NOT NULL,
    claim    BLOB,
    owner    BLOB,
    label    TEXT,
    since_ms INTEGER,
    until_ns INTEGER,
    inbox    BLOB,
    broken   TEXT
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
    PRIMARY KEY (key, seq),
    UNIQUE (key, claim)
) STRICT, WITHOUT ROWID;

-- "Lstp": how a file of ours is told from any other; and the layout.
PRAGMA application_id = 0x4C737470;
PRAGMA user_version = 1;
