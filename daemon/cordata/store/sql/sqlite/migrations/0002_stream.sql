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
    state         TEXT    NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'claimed', 'dead')),
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
CREATE INDEX message_ready ON message ("group", priority DESC, next_at, outbox_id)
    WHERE state = 'ready';
CREATE INDEX message_claimed ON message (owner, claimed_until) WHERE state = 'claimed';
CREATE INDEX message_dead ON message (dead_at) WHERE state = 'dead';

-- For retention, which deletes by age.
CREATE INDEX seen_age ON seen (created_at);
CREATE INDEX idempotency_age ON idempotency (created_at);
CREATE INDEX mail_age ON mail (created_at) WHERE state IN ('sent', 'failed');
