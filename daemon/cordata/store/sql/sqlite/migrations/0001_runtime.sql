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
    published_at  INTEGER,
    -- On Redis: the id of its entry in a stream, as one number; NULL: it was never in one.
    position      INTEGER
) STRICT;

-- By lane (live before backfill), then urgency. None of these grows with the history.
CREATE INDEX outbox_pending ON outbox (lane DESC, priority DESC, next_at, id)
    WHERE state IN ('pending', 'failed');
CREATE INDEX outbox_processing ON outbox (owner, claimed_until) WHERE state = 'processing';
-- What of one key comes before an entry.
CREATE INDEX outbox_key ON outbox (type, key, id)
    WHERE state IN ('pending', 'failed') AND key IS NOT NULL;
CREATE INDEX outbox_position ON outbox (position, id) WHERE position IS NOT NULL;

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
    sent_at    INTEGER,
    -- Pictures of the HTML: JSON [{"name", "type", "data" (base64)}, ...]; NULL: none.
    inline     TEXT
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

-- The store broker: one row per (published event, consumer group) that is not handled yet.
-- Payload and headers stay in the outbox row; a handled message is deleted, its seen-mark stays.

CREATE TABLE consumer_group (
    "group"       TEXT    NOT NULL PRIMARY KEY,
    type          TEXT    NOT NULL,
    -- Events of one key are handled one at a time, in their order.
    keyed         INTEGER NOT NULL DEFAULT 0,
    registered_at INTEGER NOT NULL,
    -- Refreshed by every start and by the primary; retention drops a group nobody knows any more.
    refreshed_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX consumer_group_type ON consumer_group (type);

CREATE TABLE message (
    outbox_id     INTEGER NOT NULL REFERENCES outbox (id),
    "group"       TEXT    NOT NULL,
    -- Of the event, if the group wants the order of keys.
    key           TEXT,
    -- waiting: an earlier one of its key is ready or claimed.
    state         TEXT    NOT NULL DEFAULT 'ready'
                  CHECK (state IN ('waiting', 'ready', 'claimed', 'dead')),
    -- lane and priority are those of the event, or more: of the most urgent one that waits for it.
    lane          TEXT    NOT NULL DEFAULT 'live',
    priority      INTEGER NOT NULL,
    -- Attempts that failed, a worker's death in the handler included.
    attempts      INTEGER NOT NULL DEFAULT 0,
    next_at       INTEGER NOT NULL,
    owner         TEXT,
    claimed_until INTEGER,
    -- JSON list of failed attempts: attempt, at, owner, error.
    history       TEXT,
    dead_at       INTEGER,
    PRIMARY KEY (outbox_id, "group")
) STRICT, WITHOUT ROWID;

-- Each stays as small as what is in flight, whatever the history.
CREATE INDEX message_ready ON message ("group", lane DESC, priority DESC, next_at, outbox_id)
    WHERE state = 'ready';
CREATE INDEX message_claimed ON message (owner, claimed_until) WHERE state = 'claimed';
CREATE INDEX message_dead ON message (dead_at) WHERE state = 'dead';
-- Who is first of a key, and how urgent what waits behind him is. Events without order are in none.
CREATE INDEX message_key ON message ("group", key, state, outbox_id) WHERE key IS NOT NULL;
CREATE INDEX message_urgent ON message ("group", key, lane, priority) WHERE state = 'waiting';

-- For retention, which deletes by age.
CREATE INDEX seen_age ON seen (created_at);
CREATE INDEX idempotency_age ON idempotency (created_at);
CREATE INDEX mail_age ON mail (created_at) WHERE state IN ('sent', 'failed');

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
CREATE TABLE subscription (
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

CREATE TABLE subscription_partition (
    subscription TEXT    NOT NULL,
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
    PRIMARY KEY (subscription, partition)
) STRICT, WITHOUT ROWID;

-- The processes that share the partitions. Whoever is not here, or has expired, owns nothing.
CREATE TABLE subscription_worker (
    owner       TEXT    NOT NULL PRIMARY KEY,
    -- JSON list of the subscriptions that it serves.
    subscriptions TEXT    NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Events that a subscription gave up; those with on_error="dead" only.
CREATE TABLE subscription_letter (
    subscription TEXT    NOT NULL,
    position   INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    history    TEXT,
    dead_at    INTEGER NOT NULL,
    PRIMARY KEY (subscription, position)
) STRICT, WITHOUT ROWID;

-- The broker on Redis: how far each group is, so that what Redis loses can be told and made up for.

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

-- Errors by kind: what happened how often, and how much of it was told by mail.

CREATE TABLE alert (
    fingerprint TEXT NOT NULL PRIMARY KEY,
    cause       TEXT NOT NULL,
    title       TEXT NOT NULL,
    sample      TEXT NOT NULL,
    place       TEXT NOT NULL,
    urgent      INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    -- Of them, not told yet; since_at is the first of these.
    pending     INTEGER NOT NULL,
    first_at    INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    since_at    INTEGER NOT NULL,
    -- When the last mail about it was written, and its message_id.
    mailed_at   INTEGER,
    mail_id     TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX alert_pending ON alert (since_at) WHERE pending > 0;

-- When mails were written, for the limit of an hour.
CREATE TABLE alert_mail (
    id         INTEGER PRIMARY KEY,
    written_at INTEGER NOT NULL
) STRICT;
