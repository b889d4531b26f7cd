-- The runtime's tables. `migration` and `lease` are in bootstrap.sql: the lease comes first.
-- All _at columns: microseconds since the epoch, UTC. JSON is TEXT.
-- Text that is indexed or ordered is {text}, on PostgreSQL COLLATE "C": the order of SQLite, whatever
-- the database's own is, and no index that a new C library on the server would break.

CREATE TABLE job_run (
    job           {text} NOT NULL,
    scope         {text} NOT NULL,
    period        {text} NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('running', 'done', 'failed')),
    owner         TEXT    NOT NULL,
    attempts      INTEGER NOT NULL DEFAULT 1,
    last_error    TEXT,
    started_at    {bigint}  NOT NULL,
    finished_at   {bigint},
    PRIMARY KEY (job, scope, period)
){keyed};

-- Events: written in the caller's transaction, kept until retention. Ids grow with time, so that
-- the unique index is appended to and a commit touches few pages.
CREATE TABLE event (
    -- The order in which events were written.
    position   {serial},
    id         {text} NOT NULL UNIQUE,
    type       {text} NOT NULL,
    key        {text},
    priority   INTEGER NOT NULL DEFAULT 0,
    payload    TEXT    NOT NULL,
    headers    TEXT    NOT NULL DEFAULT '{}',
    -- When it is due, or was.
    due_at     {bigint}  NOT NULL,
    created_at {bigint}  NOT NULL
){strict};

-- The groups that get events. Publishing fans out to what is in this table, whoever runs.
CREATE TABLE consumer_group (
    "group"       {text} NOT NULL PRIMARY KEY,
    -- Of its events; '*': all types.
    type          {text} NOT NULL,
    -- Events of one key are handled one at a time, in their order.
    keyed         {boolean} NOT NULL DEFAULT {false},
    -- What brings it its events: this database's `message`, or Redis.
    broker        {text} NOT NULL DEFAULT 'store' CHECK (broker IN ('store', 'redis')),
    -- It gets the events behind this position.
    since         {bigint}  NOT NULL,
    -- It has all of them that were published while it was registered.
    caught_up     {boolean} NOT NULL DEFAULT {false},
    registered_at {bigint}  NOT NULL,
    -- When a process last said that it has this group.
    present_at    {bigint}  NOT NULL
){keyed};

CREATE INDEX consumer_group_type ON consumer_group (type);

-- Open work only: one row per event and group that has not handled it. See core/delivery.py.
-- On SQLite with row ids: a claim moves a row from index to index, which then hold 8 bytes of it
-- instead of its event and group (claim and settle: 11.6 us a message instead of 12.2).
CREATE TABLE message (
    event_id {text} NOT NULL,
    "group"  {text} NOT NULL,
    -- Of its event: the order within a priority, and within a key.
    position {bigint}  NOT NULL,
    -- Of its event, if the group wants the order of keys.
    key      {text},
    priority INTEGER NOT NULL,
    -- scheduled: due later. Of a keyed group what was tried already is ready, and due at next_at.
    state    {text} NOT NULL CHECK (state IN ('ready', 'scheduled', 'claimed', 'dead')),
    next_at  {bigint}  NOT NULL,
    -- The process (`process`.id) that claimed it, and the number of that claim.
    owner    {text},
    claim    {bigint},
    -- Counted when it is claimed; what is given back is not counted.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- It was in the hands of a process that died: claimed alone.
    suspect  {boolean} NOT NULL DEFAULT {false},
    -- JSON list of failed attempts: attempt, at, owner, error.
    history  TEXT,
    dead_at  {bigint},
    PRIMARY KEY (event_id, "group")
){ STRICT| WITH (
    -- Rows come and go: a vacuum after so many, whatever the size of the table.
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_limit = 1000
)};

-- Each is as small as what it is for, whatever the history.
CREATE INDEX message_ready ON message ("group", priority DESC, position)
    WHERE state = 'ready' AND key IS NULL AND NOT suspect;
CREATE INDEX message_suspect ON message ("group", position) WHERE state = 'ready' AND suspect;
CREATE INDEX message_scheduled ON message (next_at) WHERE state = 'scheduled';
CREATE INDEX message_claimed ON message (owner, claim) WHERE state = 'claimed';
CREATE INDEX message_dead ON message (dead_at) WHERE state = 'dead';
-- The first of each key, and whether one of it is claimed.
CREATE INDEX message_key ON message ("group", key, position)
    WHERE key IS NOT NULL AND state = 'ready';
CREATE INDEX message_key_claimed ON message ("group", key)
    WHERE key IS NOT NULL AND state = 'claimed';

-- Publishing fans out. (PostgreSQL does it in the statement that adds the event.)
{CREATE TRIGGER event_fan_out AFTER INSERT ON event BEGIN
    INSERT INTO message (event_id, "group", position, key, priority, state, next_at)
    SELECT new.id, g."group", new.position, iif(g.keyed, new.key, NULL), new.priority,
           iif(new.due_at > new.created_at, 'scheduled', 'ready'), new.due_at
    FROM consumer_group AS g WHERE g.type IN (new.type, '*') AND g.broker = 'store';
END;|}

-- What a group has handled: the history, and the mark that an effect happens once. It commits with
-- the effect.
CREATE TABLE handled (
    event_id   {text} NOT NULL,
    "group"    {text} NOT NULL,
    attempts   INTEGER NOT NULL,
    handled_at {bigint}  NOT NULL,
    PRIMARY KEY (event_id, "group")
){keyed};

-- The processes that claim messages. One that has expired holds nothing any more.
CREATE TABLE process (
    id         {text} NOT NULL PRIMARY KEY,
    -- Host, boot and namespace of its process id: who shares these can see whether it lives.
    host       {text} NOT NULL,
    boot       {text} NOT NULL,
    pid        {bigint} NOT NULL,
    -- When it started, as the kernel counts: tells it from a later process with its number.
    start      {bigint} NOT NULL,
    -- JSON list of the subscriptions to the event store that it serves.
    subscriptions TEXT NOT NULL,
    expires_at {bigint} NOT NULL
){keyed};

CREATE TABLE mail (
    id         {serial},
    message_id {text} NOT NULL UNIQUE,
    "to"       TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    html       TEXT,
    state      {text} NOT NULL DEFAULT 'pending'
               CHECK (state IN ('pending', 'sending', 'sent', 'failed')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    {bigint}  NOT NULL,
    -- JSON list of the recipients that are still to get it; NULL: all of "to".
    remaining  TEXT,
    last_error TEXT,
    request_id TEXT    NOT NULL DEFAULT '',
    created_at {bigint}  NOT NULL,
    sent_at    {bigint},
    -- Pictures of the HTML: JSON [{"name", "type", "data" (base64)}, ...]; NULL: none.
    inline     TEXT
){strict};

CREATE INDEX mail_due ON mail (next_at, id) WHERE state IN ('pending', 'sending');

CREATE TABLE idempotency (
    scope      {text} NOT NULL,
    key        {text} NOT NULL,
    body_hash  TEXT    NOT NULL,
    response   TEXT    NOT NULL,
    created_at {bigint} NOT NULL,
    PRIMARY KEY (scope, key)
){keyed};

-- Where each backfill stands; done_at set: never again.
CREATE TABLE backfill (
    name       {text} NOT NULL PRIMARY KEY,
    cursor     TEXT,
    steps      INTEGER NOT NULL DEFAULT 0,
    started_at {bigint}  NOT NULL,
    updated_at {bigint}  NOT NULL,
    done_at    {bigint}
){keyed};

-- For retention, which deletes by age.
CREATE INDEX idempotency_age ON idempotency (created_at);
CREATE INDEX mail_age ON mail (created_at) WHERE state IN ('sent', 'failed');

-- The event store: what happened, for ever, in streams. Apart from `event`, whose rows are
-- handled once by each group and deleted.

-- The version of a stream is that of its last event; the first one has version 1. Its row is locked
-- by whoever appends, until they commit: so positions grow within a stream, too.
CREATE TABLE event_stream (
    stream  {text} NOT NULL PRIMARY KEY,
    version {bigint} NOT NULL
){ STRICT, WITHOUT ROWID| WITH (fillfactor = 70)};

-- The position orders all events, and none is given twice: nothing is ever deleted. On SQLite one
-- process writes at a time, so it is also the order of the commits. On PostgreSQL it is given when an
-- event is written, not when it is committed, and some are given to transactions that roll back;
-- readers go up to a position below which nothing is in flight any more, see event.mark.
CREATE TABLE stored_event (
    position   {serial},
    stream     {text} NOT NULL,
    version    {bigint}  NOT NULL,
    -- The name of the stream up to its first "-".
    category   {text} NOT NULL,
    -- Hash of the name of the stream: bucket % partitions is its partition in a subscription.
    bucket     INTEGER NOT NULL,
    type       {text} NOT NULL,
    payload    TEXT    NOT NULL,
    headers    TEXT    NOT NULL DEFAULT '{}',
    created_at {bigint}  NOT NULL
){strict};

CREATE UNIQUE INDEX stored_event_version ON stored_event (stream, version);
-- With the bucket, so that a reader of one partition passes over the others' events in the index.
CREATE INDEX stored_event_category ON stored_event (category, position, bucket);

-- A subscription to a category, by its name in the code.
CREATE TABLE subscription (
    name       {text} NOT NULL PRIMARY KEY,
    category   {text} NOT NULL,
    -- Of the rows below; another number in the code counts from the next reset on.
    partitions INTEGER NOT NULL,
    -- Where it began, at first or after the last reset.
    origin     {bigint}  NOT NULL,
    created_at {bigint}  NOT NULL,
    reset_at   {bigint},
    -- Until then nobody claims a partition: a reset is under way.
    paused_until {bigint}
){keyed};

-- Half empty pages: a position is updated again and again, in place.
CREATE TABLE subscription_partition (
    subscription {text} NOT NULL,
    partition  INTEGER NOT NULL,
    -- All its events up to here are handled.
    position   {bigint}  NOT NULL,
    -- Grows with each claim and reset; a write of an older term is refused.
    term       {bigint}  NOT NULL,
    owner      {text},
    -- Failed attempts at the event at position `failing`, and when the next one is due.
    failing    {bigint},
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    {bigint},
    -- JSON list of failed attempts: attempt, at, owner, error.
    history    TEXT,
    -- Since when it waits for an operator.
    blocked_at {bigint},
    PRIMARY KEY (subscription, partition)
){ STRICT, WITHOUT ROWID| WITH (fillfactor = 50)};

-- Events that a subscription gave up; those with on_error="dead" only.
CREATE TABLE subscription_letter (
    subscription {text} NOT NULL,
    position   {bigint}  NOT NULL,
    attempts   INTEGER NOT NULL,
    history    TEXT,
    dead_at    {bigint}  NOT NULL,
    PRIMARY KEY (subscription, position)
){keyed};

-- The broker on Redis: what Redis has been given, so that what it loses can be given again.

-- One row: the process of Redis, and the copy of its data, that relays may add to.
CREATE TABLE redis_server (
    id           {bigint} NOT NULL PRIMARY KEY CHECK (id = 1),
    run_id       TEXT   NOT NULL,
    epoch        TEXT   NOT NULL,
    -- Entries up to here were there when Redis came back: they may have been handled before.
    recheck_to   {bigint} NOT NULL,
    recovered_at {bigint} NOT NULL
){strict};

-- Events in streams that some group may not have handled.
CREATE TABLE redis_sent (
    type     {text} NOT NULL,
    -- The id of its entry in the stream of the type, as a number.
    entry    {bigint} NOT NULL,
    event_id {text} NOT NULL,
    PRIMARY KEY (type, entry)
){ STRICT, WITHOUT ROWID| WITH (
    -- Rows come and go, as those of message.
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000
)};
-- Retention asks by event.
CREATE INDEX redis_sent_event ON redis_sent (event_id);

-- Errors by kind: what happened how often, and how much of it was told by mail.

CREATE TABLE alert (
    fingerprint {text} NOT NULL PRIMARY KEY,
    cause       TEXT NOT NULL,
    title       TEXT NOT NULL,
    sample      TEXT NOT NULL,
    place       TEXT NOT NULL,
    urgent      {bigint} NOT NULL,
    count       {bigint} NOT NULL,
    -- Of them, not told yet; since_at is the first of these.
    pending     {bigint} NOT NULL,
    first_at    {bigint} NOT NULL,
    last_at     {bigint} NOT NULL,
    since_at    {bigint} NOT NULL,
    -- When the last mail about it was written, and its message_id.
    mailed_at   {bigint},
    mail_id     TEXT
){keyed};

CREATE INDEX alert_pending ON alert (since_at) WHERE pending > 0;

-- When mails were written, for the limit of an hour.
CREATE TABLE alert_mail (
    id         {serial},
    written_at {bigint} NOT NULL
){strict};
