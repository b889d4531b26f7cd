-- The broker on Redis: how far each group is, so that what Redis loses can be told and made up for.

-- The id of its entry in a stream, as one number; NULL: it was never in one.
ALTER TABLE outbox ADD COLUMN position INTEGER;
CREATE INDEX outbox_position ON outbox (position, id) WHERE position IS NOT NULL;

-- One row: the process of Redis, and the history of its data, that the positions belong to.
CREATE TABLE redis_server (
    id           INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    run_id       TEXT    NOT NULL,
    epoch        TEXT    NOT NULL,
    recovered_at INTEGER NOT NULL
) STRICT;

-- Levels: urgent, normal, low (by priority), backfill (the lane).
CREATE TABLE redis_stream (
    type     TEXT    NOT NULL,
    level    TEXT    NOT NULL,
    -- The highest that the primary has seen.
    position INTEGER NOT NULL,
    -- Entries up to here were there when Redis came back: they may have been handled before.
    floor    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (type, level)
) STRICT, WITHOUT ROWID;

-- A group has handled all entries of a stream up to its position, or has them in `message`.
CREATE TABLE redis_group (
    type     TEXT    NOT NULL,
    level    TEXT    NOT NULL,
    "group"  TEXT    NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (type, level, "group")
) STRICT, WITHOUT ROWID;
