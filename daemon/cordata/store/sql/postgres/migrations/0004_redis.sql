-- The broker on Redis: how far each group is, so that what Redis loses can be told and made up for.

-- The id of its entry in a stream, as one number; NULL: it was never in one.
ALTER TABLE outbox ADD COLUMN position BIGINT;
CREATE INDEX outbox_position ON outbox (position, id) WHERE position IS NOT NULL;

-- One row: the process of Redis, and the history of its data, that the positions belong to.
CREATE TABLE redis_server (
    id           BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    run_id       TEXT   NOT NULL,
    epoch        TEXT   NOT NULL,
    recovered_at BIGINT NOT NULL
);

-- Levels: urgent, normal, low (by priority), backfill (the lane).
CREATE TABLE redis_stream (
    type     TEXT COLLATE "C" NOT NULL,
    level    TEXT COLLATE "C" NOT NULL,
    -- The highest that the primary has seen.
    position BIGINT NOT NULL,
    -- Entries up to here were there when Redis came back: they may have been handled before.
    floor    BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (type, level)
);

-- A group has handled all entries of a stream up to its position, or has them in `message`.
CREATE TABLE redis_group (
    type     TEXT COLLATE "C" NOT NULL,
    level    TEXT COLLATE "C" NOT NULL,
    "group"  TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (type, level, "group")
);
