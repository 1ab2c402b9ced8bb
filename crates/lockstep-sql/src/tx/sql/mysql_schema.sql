-- Lockstep in your own MySQL or MariaDB database, layout 1. Keys are bytes, so that neither case nor
-- trailing spaces are folded.

-- The highest token that a tx here has seen of each lock.
CREATE TABLE IF NOT EXISTS lockstep_fence (
    origin VARBINARY(128) NOT NULL,
    `key`  VARBINARY(320) NOT NULL,
    token  BIGINT NOT NULL,
    PRIMARY KEY (origin, `key`)
) ENGINE = InnoDB;

-- Rows to lock. They say nothing else and stay.
CREATE TABLE IF NOT EXISTS lockstep_mutex (
    `key` VARBINARY(320) NOT NULL PRIMARY KEY
) ENGINE = InnoDB;
