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
