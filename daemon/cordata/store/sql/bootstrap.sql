-- Tables that must exist before the first migration: the lease, and the applied migrations.
-- Repeatable; run by the lease and by migrate, under the lock for writing or for migrations.

CREATE TABLE IF NOT EXISTS migration (
    component TEXT NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,               -- SHA-256 of its text, which must not change once it is applied
    applied_at {bigint} NOT NULL,
    PRIMARY KEY (component, number)
){keyed};

CREATE TABLE IF NOT EXISTS lease (
    name TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    term {bigint} NOT NULL,             -- only grows: it is the fencing token
    acquired_at {bigint} NOT NULL,
    released_at {bigint},
    -- A primary whose program has this migration waits for it.
    wanted_by TEXT,
    wanted_component TEXT,
    wanted_number INTEGER,
    wanted_at {bigint}
){keyed};
