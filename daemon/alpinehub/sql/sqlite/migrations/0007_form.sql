-- What the forms of a source look like: names of fields, never a value of one.
CREATE TABLE form (
    id INTEGER PRIMARY KEY,
    source_id INTEGER NOT NULL REFERENCES source (id),
    form_key TEXT NOT NULL,             -- the form's own id, else its name, else ''
    signature BLOB NOT NULL,                -- hash of its sorted keys
    fields TEXT NOT NULL,               -- JSON [[key, label], ...]
    first_seen_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,      -- to the hour
    UNIQUE (source_id, form_key, signature)
) STRICT;
