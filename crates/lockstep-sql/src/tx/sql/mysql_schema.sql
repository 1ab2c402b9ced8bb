-- Lockstep in your own MySQL or MariaDB database, layout 1. Keys are bytes, so that neither case nor
-- trailing spaces are folded.
--
--   GRANT SELECT ON lockstep_store TO user;
--   GRANT SELECT, INSERT, UPDATE ON lockstep_fence TO user;

-- Which database this is, so that a guard can be told from one of another. A copy of the database
-- has the same row but another home, and is nobody until this script names it anew: its fences do not
-- follow the locks of the original.
CREATE TABLE IF NOT EXISTS lockstep_store (
    one  TINYINT NOT NULL PRIMARY KEY,
    id   BINARY(16) NOT NULL,
    home VARBINARY(2048) NOT NULL
) ENGINE = InnoDB;

INSERT INTO lockstep_store (one, id, home) VALUES (1, UNHEX(REPLACE(UUID(), '-', '')), {home})
ON DUPLICATE KEY UPDATE id = IF(home = VALUES(home), id, VALUES(id)), home = VALUES(home);

-- origin '': the first token that is not yet out of date, of locks in this database. Only a hold that
-- ended without being given back raises it. Other origins: the highest token that a tx here has seen
-- of a lock kept elsewhere.
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
