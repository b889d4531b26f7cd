-- What handlers did, once per line.
CREATE TABLE effect (
    id       INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL,
    owner    TEXT NOT NULL,
    at       INTEGER NOT NULL
) STRICT;
