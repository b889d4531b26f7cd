-- Token buckets of public forms (webhooks/form_limit.py). A bucket without a row, or whose full_at is
-- over, is full.
CREATE TABLE form_limit (
    key BLOB NOT NULL PRIMARY KEY,      -- keyed hash of an address, a source, a proof of work
    full_at INTEGER NOT NULL            -- when the bucket is full again
) STRICT, WITHOUT ROWID;
