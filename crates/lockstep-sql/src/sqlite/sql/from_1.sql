-- Layout 1 knew exclusive locks only, and so does a process that still uses it: it takes a lock that
-- several hold for one that a stranger holds for ever.
ALTER TABLE lockstep_lock ADD COLUMN weight INTEGER NOT NULL DEFAULT 2147483647;
ALTER TABLE lockstep_lock ADD COLUMN total INTEGER NOT NULL DEFAULT 2147483647;
ALTER TABLE lockstep_waiter ADD COLUMN weight INTEGER NOT NULL DEFAULT 2147483647;
CREATE INDEX lockstep_waiter_owner ON lockstep_waiter (owner);
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
PRAGMA user_version = 2;
