-- The runtime's tables. `migration` and `lease` are in bootstrap.sql: the lease comes first.
-- All _at columns: microseconds since the epoch, UTC. JSON is TEXT.
-- Text that is indexed or ordered is {text}, on PostgreSQL COLLATE "C": the order of SQLite, whatever
-- the database's default is, and a new C library on the server breaks no index.

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

-- The groups that get events. Publishing fans out to the groups in this table, whether workers run or
-- not.
CREATE TABLE consumer_group (
    "group"       {text} NOT NULL PRIMARY KEY,
    -- Type of its events; '*': all types.
    type          {text} NOT NULL,
    -- Events of one key are handled one at a time, in their order.
    keyed         {boolean} NOT NULL DEFAULT {false},
    -- What carries its events: 'store' (the table `message`) or 'redis'.
    broker        {text} NOT NULL DEFAULT 'store' CHECK (broker IN ('store', 'redis')),
    -- It gets the events after this position.
    since         {bigint}  NOT NULL,
    -- Whether it has got the events that were published while it was registered.
    caught_up     {boolean} NOT NULL DEFAULT {false},
    registered_at {bigint}  NOT NULL,
    -- When a process with this group was last present.
    present_at    {bigint}  NOT NULL
){keyed};

CREATE INDEX consumer_group_type ON consumer_group (type);

-- Open work only: one row per event and group that has not handled it. See core/message_state.py.
-- On SQLite with row ids: a claim moves a row from index to index, whose entries then have 8 bytes
-- instead of event and group (claim and settle: 11.6 us a message instead of 12.2).
CREATE TABLE message (
    event_id {text} NOT NULL,
    "group"  {text} NOT NULL,
    -- Position of its event: the order within a priority, and within a key.
    position {bigint}  NOT NULL,
    -- Key of its event, if the group handles keys in order.
    key      {text},
    priority INTEGER NOT NULL,
    -- scheduled: due later. In a keyed group a message that waits for a retry is ready, due at next_at.
    state    {text} NOT NULL CHECK (state IN ('ready', 'scheduled', 'claimed', 'dead')),
    next_at  {bigint}  NOT NULL,
    -- The process (`process`.id) that claimed it, and the number of that claim.
    owner    {text},
    claim    {bigint},
    -- Counted when it is claimed; not counted if it is given back.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- A process that had claimed it died: it is claimed alone.
    suspect  {boolean} NOT NULL DEFAULT {false},
    -- JSON list of failed attempts: attempt, at, owner, error.
    history  TEXT,
    dead_at  {bigint},
    PRIMARY KEY (event_id, "group")
){ STRICT| WITH (
    -- Rows are added and deleted all the time: a vacuum after so many, whatever the size of the table.
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_limit = 1000
)};

-- Partial indexes: none grows with the history.
CREATE INDEX message_ready ON message ("group", priority DESC, position)
    WHERE state = 'ready' AND key IS NULL AND NOT suspect;
CREATE INDEX message_suspect ON message ("group", position) WHERE state = 'ready' AND suspect;
CREATE INDEX message_scheduled ON message (next_at) WHERE state = 'scheduled';
CREATE INDEX message_claimed ON message (owner, claim) WHERE state = 'claimed';
CREATE INDEX message_dead ON message (dead_at) WHERE state = 'dead';
-- To find the first message of each key, and whether one of the key is claimed.
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

-- The marks: which events a group has handled. A mark commits with the effect, so that it happens
-- once.
CREATE TABLE handled (
    event_id   {text} NOT NULL,
    "group"    {text} NOT NULL,
    attempts   INTEGER NOT NULL,
    handled_at {bigint}  NOT NULL,
    PRIMARY KEY (event_id, "group")
){keyed};

-- The processes that claim messages. Claims of one that has expired are void.
CREATE TABLE process (
    id         {text} NOT NULL PRIMARY KEY,
    -- Host, boot and namespace of its process id: processes with the same can see whether it lives.
    host       {text} NOT NULL,
    boot       {text} NOT NULL,
    pid        {bigint} NOT NULL,
    -- When it started, in clock ticks of the kernel: tells it from a later process with its id.
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
    -- JSON list of the recipients that it is still to be sent to; NULL: all of "to".
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

-- The progress of each backfill; one with done_at does not run again.
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

-- The event store: events that are kept for good, in streams. The rows of `event` are different: each
-- group handles them once, and they are deleted.

-- The version of a stream is that of its last event; the first one has version 1. An append locks the
-- row until its commit: so positions grow within a stream, too.
CREATE TABLE event_stream (
    stream  {text} NOT NULL PRIMARY KEY,
    version {bigint} NOT NULL
){ STRICT, WITHOUT ROWID| WITH (fillfactor = 70)};

-- The position orders all events; none is used twice, since nothing is ever deleted. On SQLite one
-- process writes at a time, so it is also the order of the commits. On PostgreSQL an event gets it when
-- it is written, not when it is committed, and some are lost to transactions that roll back. Readers
-- read up to a position below which no transaction is in flight: see event.mark.
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
-- With the bucket, so that a reader of one partition skips other events within the index.
CREATE INDEX stored_event_category ON stored_event (category, position, bucket);

-- A subscription to a category, by its name in the code.
CREATE TABLE subscription (
    name       {text} NOT NULL PRIMARY KEY,
    category   {text} NOT NULL,
    -- Number of its rows below; another number in the code takes effect at the next reset.
    partitions INTEGER NOT NULL,
    -- The position at which it began, or began again after the last reset.
    origin     {bigint}  NOT NULL,
    created_at {bigint}  NOT NULL,
    reset_at   {bigint},
    -- No partition is claimed before this time: a reset is under way.
    paused_until {bigint}
){keyed};

-- Half empty pages, so that positions are updated in place.
CREATE TABLE subscription_partition (
    subscription {text} NOT NULL,
    partition  INTEGER NOT NULL,
    -- All its events up to this position are handled.
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
CREATE TABLE subscription_dead_event (
    subscription {text} NOT NULL,
    position   {bigint}  NOT NULL,
    attempts   INTEGER NOT NULL,
    history    TEXT,
    dead_at    {bigint}  NOT NULL,
    PRIMARY KEY (subscription, position)
){keyed};

-- The broker on Redis: which events were added to Redis, so that lost ones can be published again.

-- One row: the process of Redis, and the copy of its data, that relays may add to.
CREATE TABLE redis_server (
    id           {bigint} NOT NULL PRIMARY KEY CHECK (id = 1),
    run_id       TEXT   NOT NULL,
    epoch        TEXT   NOT NULL,
    -- Entries up to this one were in Redis when it was recovered: they may have been handled before.
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
    -- As for message.
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000
)};
-- For retention, which looks up events.
CREATE INDEX redis_sent_event ON redis_sent (event_id);

-- Errors by kind: how often each happened, and what was mailed about it.

CREATE TABLE alert (
    fingerprint {text} NOT NULL PRIMARY KEY,
    cause       TEXT NOT NULL,
    title       TEXT NOT NULL,
    sample      TEXT NOT NULL,
    place       TEXT NOT NULL,
    urgent      {bigint} NOT NULL,
    count       {bigint} NOT NULL,
    -- How many are not mailed yet; since_at: when the first of these happened.
    pending     {bigint} NOT NULL,
    first_at    {bigint} NOT NULL,
    last_at     {bigint} NOT NULL,
    since_at    {bigint} NOT NULL,
    -- When the last mail about it was written, and its message_id.
    mailed_at   {bigint},
    mail_id     TEXT
){keyed};

CREATE INDEX alert_pending ON alert (since_at) WHERE pending > 0;

-- When mails were written, for the limit per hour.
CREATE TABLE alert_mail (
    id         {serial},
    written_at {bigint} NOT NULL
){strict};
