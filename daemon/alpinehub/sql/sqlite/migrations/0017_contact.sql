-- When hotel software last came, for each hotel that it reads.
CREATE TABLE contact (
    account_id INTEGER NOT NULL REFERENCES account (id),
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    protocol TEXT NOT NULL,             -- of the last time
    client_id TEXT,
    polled_at INTEGER,
    acked_at INTEGER,
    stale_at INTEGER,                  -- the operator was told that it does not come
    PRIMARY KEY (account_id, hotel_id)
) STRICT, WITHOUT ROWID;

-- What an account's software and this server last agreed on.
CREATE TABLE handshake (
    account_id INTEGER NOT NULL REFERENCES account (id),
    protocol TEXT NOT NULL,
    capabilities TEXT NOT NULL,         -- JSON {action: [support, ...]}
    at INTEGER NOT NULL,
    PRIMARY KEY (account_id, protocol)
) STRICT, WITHOUT ROWID;

-- Hotel software that does not come: guest requests are brought to it.
CREATE TABLE push_target (
    account_id INTEGER NOT NULL PRIMARY KEY REFERENCES account (id),
    url TEXT NOT NULL,
    login TEXT NOT NULL,
    secret BLOB NOT NULL,               -- sealed with the master key
    protocol TEXT NOT NULL,
    packed INTEGER NOT NULL CHECK (packed IN (0, 1)), -- by gzip
    failures INTEGER NOT NULL,          -- since the last success
    last_error TEXT,
    next_at INTEGER,                    -- not before
    pushed_at INTEGER,                  -- last success
    changed_at INTEGER NOT NULL,
    disabled_at INTEGER
) STRICT, WITHOUT ROWID;
