-- Lockstep in your own SQLite database, layout 1. Text compares byte by byte.

-- The highest token that a tx here has seen of each lock.
CREATE TABLE IF NOT EXISTS lockstep_fence (
    origin TEXT NOT NULL,
    key    TEXT NOT NULL,
    token  INTEGER NOT NULL,
    PRIMARY KEY (origin, key)
) WITHOUT ROWID;

-- Rows to lock. They say nothing else and stay.
CREATE TABLE IF NOT EXISTS lockstep_mutex (
    key TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;
