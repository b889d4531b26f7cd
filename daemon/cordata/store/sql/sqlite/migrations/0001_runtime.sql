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

-- Events: written in the caller's transaction, kept until retention. Ids grow with time, so that
-- the unique index is appended to and a commit touches few pages.
CREATE TABLE event (
    -- The order in which events were written.
    position   INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    type       TEXT NOT NULL,
    key        TEXT,
    priority   INTEGER NOT NULL DEFAULT 0,
    payload    TEXT    NOT NULL,
    headers    TEXT    NOT NULL DEFAULT '{}',
    -- When it is due, or was.
    due_at     INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- The groups that get events. Publishing fans out to what is in this table, whoever runs.
CREATE TABLE consumer_group (
    "group"       TEXT NOT NULL PRIMARY KEY,
    -- Of its events; '*': all types.
    type          TEXT NOT NULL,
    -- Events of one key are handled one at a time, in their order.
    keyed         INTEGER NOT NULL DEFAULT 0,
    -- What brings it its events: this database's `message`, or Redis.
    broker        TEXT NOT NULL DEFAULT 'store' CHECK (broker IN ('store', 'redis')),
    -- It gets the events behind this position.
    since         INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    -- When a process last said that it has this group.
    present_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX consumer_group_type ON consumer_group (type);

-- Open work only: one row per event and group that has not handled it. See core/delivery.py.
CREATE TABLE message (
    event_id TEXT NOT NULL,
    "group"  TEXT NOT NULL,
    -- Of its event: the order within a priority, and within a key.
    position INTEGER NOT NULL,
    -- Of its event, if the group wants the order of keys.
    key      TEXT,
    priority INTEGER NOT NULL,
    -- scheduled: due later. Of a keyed group what was tried already is ready, and due at next_at.
    state    TEXT NOT NULL CHECK (state IN ('ready', 'scheduled', 'claimed', 'dead')),
    next_at  INTEGER NOT NULL,
    -- The process (`process`.id) that claimed it, and the number of that claim.
    owner    TEXT,
    claim    INTEGER,
    -- Counted when it is claimed; what is given back is not counted.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- It was in the hands of a process that died: claimed alone.
    suspect  INTEGER NOT NULL DEFAULT 0,
    -- JSON list of failed attempts: attempt, at, owner, error.
    history  TEXT,
    dead_at  INTEGER,
    PRIMARY KEY (event_id, "group")
) STRICT, WITHOUT ROWID;

-- Each is as small as what it is for, whatever the history.
CREATE INDEX message_ready ON message ("group", priority DESC, position)
    WHERE state = 'ready' AND key IS NULL AND NOT suspect;
CREATE INDEX message_suspect ON message ("group", position) WHERE state = 'ready' AND suspect;
CREATE INDEX message_scheduled ON message (next_at) WHERE state = 'scheduled';
CREATE INDEX message_claimed ON message (owner, claim) WHERE state = 'claimed';
CREATE INDEX message_dead ON message (dead_at) WHERE state = 'dead';
-- The first of each key, and whether one of it is in hand.
CREATE INDEX message_key ON message ("group", key, position)
    WHERE key IS NOT NULL AND state = 'ready';
CREATE INDEX message_key_claimed ON message ("group", key)
    WHERE key IS NOT NULL AND state = 'claimed';

-- Publishing fans out. (PostgreSQL does it in the statement that adds the event.)
CREATE TRIGGER event_fan_out AFTER INSERT ON event BEGIN
    INSERT INTO message (event_id, "group", position, key, priority, state, next_at)
    SELECT new.id, g."group", new.position, iif(g.keyed, new.key, NULL), new.priority,
           iif(new.due_at > new.created_at, 'scheduled', 'ready'), new.due_at
    FROM consumer_group AS g WHERE g.type IN (new.type, '*') AND g.broker = 'store';
END;

-- What a group has handled: the history, and the mark that an effect happens once. It commits with
-- the effect.
CREATE TABLE handled (
    event_id   TEXT NOT NULL,
    "group"    TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    handled_at INTEGER NOT NULL,
    PRIMARY KEY (event_id, "group")
) STRICT, WITHOUT ROWID;

-- The processes that claim messages. One that has expired holds nothing any more.
CREATE TABLE process (
    id         TEXT NOT NULL PRIMARY KEY,
    -- Host, boot and namespace of its process id: who shares these can see whether it lives.
    host       TEXT NOT NULL,
    boot       TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    -- When it started, as the kernel counts: tells it from a later process with its number.
    start      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
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

-- For retention, which deletes by age.
CREATE INDEX idempotency_age ON idempotency (created_at);
CREATE INDEX mail_age ON mail (created_at) WHERE state IN ('sent', 'failed');

-- The event store: what happened, for ever, in streams. Apart from `event`, whose rows are
-- handled once by each group and deleted.

-- The version of a stream is that of its last event; the first one has version 1.
CREATE TABLE event_stream (
    stream  TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The position orders all events. One process writes at a time, so it is also the order of the
-- commits; and nothing is ever deleted, so no position is given twice.
CREATE TABLE stored_event (
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

CREATE UNIQUE INDEX stored_event_version ON stored_event (stream, version);
-- With the bucket, so that a reader of one partition passes over the others' events in the index.
CREATE INDEX stored_event_category ON stored_event (category, position, bucket);

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

-- The broker on Redis: what Redis has been given, so that what it loses can be given again.

-- One row: the process of Redis, and the copy of its data, that relays may add to.
CREATE TABLE redis_server (
    id           INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    run_id       TEXT   NOT NULL,
    epoch        TEXT   NOT NULL,
    -- Entries up to here were there when Redis came back: they may have been handled before.
    recheck_to   INTEGER NOT NULL,
    recovered_at INTEGER NOT NULL
) STRICT;

-- Events in streams that some group may not have handled.
CREATE TABLE redis_sent (
    type     TEXT NOT NULL,
    -- The id of its entry in the stream of the type, as a number.
    entry    INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    PRIMARY KEY (type, entry)
) STRICT, WITHOUT ROWID;
-- Retention asks by event.
CREATE INDEX redis_sent_event ON redis_sent (event_id);

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
