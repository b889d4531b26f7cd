-- When hotel software last came, for each hotel that it reads.
CREATE TABLE contact (
    account_id BIGINT NOT NULL,
    hotel_id BIGINT NOT NULL,
    protocol TEXT COLLATE "C" NOT NULL, -- of the last time
    client_id TEXT,
    polled_at BIGINT,
    acked_at BIGINT,
    stale_at BIGINT,                   -- the operator was told that it does not come
    PRIMARY KEY (account_id, hotel_id)
);

-- What an account's software and this server last agreed on.
CREATE TABLE handshake (
    account_id BIGINT NOT NULL,
    protocol TEXT COLLATE "C" NOT NULL,
    capabilities TEXT NOT NULL,         -- JSON {action: [support, ...]}
    at BIGINT NOT NULL,
    PRIMARY KEY (account_id, protocol)
);

-- Hotel software that does not come: guest requests are brought to it.
CREATE TABLE push_target (
    account_id BIGINT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    login TEXT NOT NULL,
    secret BYTEA NOT NULL,              -- sealed with the master key
    protocol TEXT COLLATE "C" NOT NULL,
    packed INTEGER NOT NULL CHECK (packed IN (0, 1)), -- by gzip
    failures INTEGER NOT NULL,          -- since the last success
    last_error TEXT,
    next_at BIGINT,                     -- not before
    pushed_at BIGINT,                   -- last success
    changed_at BIGINT NOT NULL,
    disabled_at BIGINT
);
