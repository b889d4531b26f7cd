-- What hotel software tells of its hotel. One that is written meanwhile is seen by its revision.
CREATE TABLE hotel_document (
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    kind TEXT NOT NULL CHECK (kind IN ('freerooms', 'inventory', 'info')),
    revision INTEGER NOT NULL,
    protocol TEXT NOT NULL,             -- in which it came
    account_id INTEGER NOT NULL REFERENCES account (id),    -- who sent it
    body BLOB NOT NULL,                 -- zlib: JSON of freerooms, else canonical XML
    complete_at INTEGER,                -- last complete set
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (hotel_id, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE rate_plan (
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    code TEXT NOT NULL,
    protocol TEXT NOT NULL,
    body BLOB NOT NULL,                 -- zlib: canonical XML
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (hotel_id, code)
) STRICT, WITHOUT ROWID;
CREATE TABLE activity (
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    context TEXT NOT NULL,              -- whose id it is
    event_id TEXT NOT NULL,
    protocol TEXT NOT NULL,
    body BLOB NOT NULL,                 -- zlib: canonical XML
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (hotel_id, context, event_id)
) STRICT, WITHOUT ROWID;

-- Each time that hotel software told something, and what it was answered.
CREATE TABLE inbound_message (
    id INTEGER PRIMARY KEY,
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    account_id INTEGER NOT NULL REFERENCES account (id),
    action TEXT NOT NULL,
    protocol TEXT NOT NULL,
    client_id TEXT,
    request_id TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('success', 'advisory', 'warning', 'error')),
    problem TEXT                        -- the first one of the answer
) STRICT;
CREATE INDEX inbound_message_hotel ON inbound_message (hotel_id, id);
