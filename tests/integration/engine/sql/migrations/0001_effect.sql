-- What handlers did, once per line.
CREATE TABLE effect (
    id       {serial},
    event_id TEXT NOT NULL,
    owner    TEXT NOT NULL,
    at       {bigint} NOT NULL
){strict};
