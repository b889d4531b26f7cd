-- The runtime's tables. `migration` and `lease` are in bootstrap.sql: the lease comes first.
-- All _at columns: microseconds since the epoch, UTC. JSON is TEXT.

CREATE TABLE job_run (
    job           TEXT    NOT NULL,
    scope         TEXT    NOT NULL,
    period        TEXT    NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('running', 'done', 'failed')),
    owner         TEXT    NOT NULL,
    claimed_until INTEGER NOT NULL,
    attempts      INTEGER NOT NULL DEFAULT 1,
    last_error    TEXT,
    started_at    INTEGER NOT NULL,
    finished_at   INTEGER,
    PRIMARY KEY (job, scope, period)
) STRICT, WITHOUT ROWID;

-- Written in the caller's transaction, published by the relay. Event ids grow with time, so
-- that the unique index is appended to and a commit touches few pages.
CREATE TABLE outbox (
    id            INTEGER PRIMARY KEY,
    event_id      TEXT    NOT NULL UNIQUE,
    type          TEXT    NOT NULL,
    key           TEXT,
    lane          TEXT    NOT NULL DEFAULT 'live',
    priority      INTEGER NOT NULL DEFAULT 0,
    payload       TEXT    NOT NULL,
    headers       TEXT    NOT NULL DEFAULT '{}',
    state         TEXT    NOT NULL DEFAULT 'pending'
                  CHECK (state IN ('pending', 'processing', 'published', 'failed', 'dead')),
    attempts      INTEGER NOT NULL DEFAULT 0,
    next_at       INTEGER NOT NULL,
    owner         TEXT,
    claimed_until INTEGER,
    last_error    TEXT,
    created_at    INTEGER NOT NULL,
    published_at  INTEGER
) STRICT;

-- By lane (live before backfill), then urgency. None of these grows with the history.
CREATE INDEX outbox_pending ON outbox (lane DESC, priority DESC, next_at, id)
    WHERE state IN ('pending', 'failed');
CREATE INDEX outbox_processing ON outbox (owner, claimed_until) WHERE state = 'processing';
-- What of one key comes before an entry.
CREATE INDEX outbox_key ON outbox (type, key, id)
    WHERE state IN ('pending', 'failed') AND key IS NOT NULL;

-- A handler's effect once: the mark commits with the effect.
CREATE TABLE seen (
    event_id   TEXT    NOT NULL,
    "group"    TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (event_id, "group")
) STRICT, WITHOUT ROWID;

CREATE TABLE mail (
    id         INTEGER PRIMARY KEY,
    message_id TEXT    NOT NULL UNIQUE,
    "to"       TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    html       TEXT,
    state      TEXT    NOT NULL DEFAULT 'pending'
               CHECK (state IN ('pending', 'sending', 'sent', 'failed')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    INTEGER NOT NULL,
    -- JSON list of the recipients that are still to get it; NULL: all of "to".
    remaining  TEXT,
    last_error TEXT,
    request_id TEXT    NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    sent_at    INTEGER
) STRICT;

CREATE INDEX mail_due ON mail (next_at, id) WHERE state IN ('pending', 'sending');

CREATE TABLE idempotency (
    scope      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    body_hash  TEXT    NOT NULL,
    response   TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

-- Where each backfill stands; done_at set: never again.
CREATE TABLE backfill (
    name       TEXT    NOT NULL PRIMARY KEY,
    cursor     TEXT,
    steps      INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    done_at    INTEGER
) STRICT, WITHOUT ROWID;
