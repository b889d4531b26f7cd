-- The store broker: one row per (published event, consumer group) that is not handled yet.
-- Payload and headers stay in the outbox row; a handled message is deleted, its seen-mark stays.

CREATE TABLE consumer_group (
    "group"       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    type          TEXT COLLATE "C" NOT NULL,
    -- Events of one key are handled one at a time, in their order.
    keyed         INTEGER NOT NULL DEFAULT 0,
    registered_at BIGINT NOT NULL,
    -- Refreshed by every start and by the primary; retention drops a group nobody knows any more.
    refreshed_at  BIGINT NOT NULL
);

CREATE INDEX consumer_group_type ON consumer_group (type);

CREATE TABLE message (
    outbox_id     BIGINT  NOT NULL REFERENCES outbox (id),
    "group"       TEXT COLLATE "C" NOT NULL,
    -- Of the event, if the group wants the order of keys.
    key           TEXT COLLATE "C",
    -- waiting: an earlier one of its key is ready or claimed.
    state         TEXT COLLATE "C" NOT NULL DEFAULT 'ready'
                  CHECK (state IN ('waiting', 'ready', 'claimed', 'dead')),
    -- lane and priority are those of the event, or more: of the most urgent one that waits for it.
    lane          TEXT COLLATE "C" NOT NULL DEFAULT 'live',
    priority      INTEGER NOT NULL,
    -- Attempts that failed, a worker's death in the handler included.
    attempts      INTEGER NOT NULL DEFAULT 0,
    next_at       BIGINT  NOT NULL,
    owner         TEXT COLLATE "C",
    claimed_until BIGINT,
    -- JSON list of failed attempts: attempt, at, owner, error.
    history       TEXT,
    dead_at       BIGINT,
    PRIMARY KEY (outbox_id, "group")
) WITH (
    -- A queue: each row is changed and deleted at once, so dead rows are soon more than live ones.
    -- Its end is not given back to the disk, which would lock the table and be undone at once.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_limit = 1000,
    vacuum_truncate = false
);

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
