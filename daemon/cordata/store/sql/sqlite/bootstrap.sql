-- Tables that must exist before the first migration: the lease, and the applied migrations.
-- Repeatable; run under the write lock by the lease and by migrate.

CREATE TABLE IF NOT EXISTS migration (
    component  TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    -- SHA-256 of its text, which must not change once it is applied.
    digest     TEXT    NOT NULL,
    applied_at INTEGER NOT NULL,
    PRIMARY KEY (component, number)
) STRICT, WITHOUT ROWID;

-- term only grows: it is the fencing token.
CREATE TABLE IF NOT EXISTS lease (
    name        TEXT    NOT NULL PRIMARY KEY,
    holder      TEXT    NOT NULL,
    term        INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    released_at INTEGER,
    -- A primary whose program has this migration waits for it.
    wanted_by   TEXT,
    wanted_component TEXT,
    wanted_number    INTEGER,
    wanted_at   INTEGER
) STRICT, WITHOUT ROWID;
