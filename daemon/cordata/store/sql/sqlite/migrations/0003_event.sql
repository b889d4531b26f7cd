-- The event store: what happened, for ever, in streams. Apart from the outbox, whose entries are
-- sent once and deleted.

-- The version of a stream is that of its last event; the first one has version 1.
CREATE TABLE event_stream (
    stream  TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The position orders all events. One process writes at a time, so it is also the order of the
-- commits; and nothing is ever deleted, so no position is given twice.
CREATE TABLE event (
    position   INTEGER PRIMARY KEY,
    stream     TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    -- The name of the stream up to its first "-".
    category   TEXT    NOT NULL,
    -- Hash of the name of the stream: bucket % partitions is its partition in a subscription.
    bucket     INTEGER NOT NULL,
    type       TEXT    NOT NULL,
    payload    TEXT    NOT NULL,
    headers    TEXT    NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX event_version ON event (stream, version);
-- With the bucket, so that a reader of one partition passes over the others' events in the index.
CREATE INDEX event_category ON event (category, position, bucket);

-- A subscription to a category, by its name in the code.
CREATE TABLE projection (
    name       TEXT    NOT NULL PRIMARY KEY,
    category   TEXT    NOT NULL,
    -- Of the rows below; another number in the code counts from the next reset on.
    partitions INTEGER NOT NULL,
    -- Where it began, at first or after the last reset.
    origin     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    reset_at   INTEGER,
    -- Until then nobody claims a partition: a reset is under way.
    paused_until INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE projection_partition (
    projection TEXT    NOT NULL,
    partition  INTEGER NOT NULL,
    -- All its events up to here are handled.
    position   INTEGER NOT NULL,
    -- Grows with each claim and reset; a write of an older term is refused.
    term       INTEGER NOT NULL,
    owner      TEXT,
    -- Failed attempts at the event at position `failing`, and when the next one is due.
    failing    INTEGER,
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    INTEGER,
    -- JSON list of failed attempts: attempt, at, owner, error.
    history    TEXT,
    -- Since when it waits for an operator.
    blocked_at INTEGER,
    PRIMARY KEY (projection, partition)
) STRICT, WITHOUT ROWID;

-- The processes that share the partitions. Whoever is not here, or has expired, owns nothing.
CREATE TABLE projection_worker (
    owner       TEXT    NOT NULL PRIMARY KEY,
    -- JSON list of the subscriptions that it serves.
    projections TEXT    NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Events that a subscription gave up; those with on_error="dead" only.
CREATE TABLE projection_letter (
    projection TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    history    TEXT,
    dead_at    INTEGER NOT NULL,
    PRIMARY KEY (projection, position)
) STRICT, WITHOUT ROWID;
