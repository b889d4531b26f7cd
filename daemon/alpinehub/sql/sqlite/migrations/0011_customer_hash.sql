-- What a platform may be asked by: SHA-256 of each field, 32 bytes; NULL: nothing to hash.
CREATE TABLE customer_hash (
    customer_id INTEGER NOT NULL REFERENCES customer (id),
    platform TEXT NOT NULL CHECK (platform IN ('meta', 'google')),
    rule INTEGER NOT NULL,              -- version of the rules that they were made by
    made_at INTEGER NOT NULL,
    email BLOB,
    phone BLOB,
    first_name BLOB,
    last_name BLOB,
    city BLOB,
    postal_code BLOB,
    country BLOB,
    state BLOB,
    birth_date BLOB,
    gender BLOB,
    PRIMARY KEY (customer_id, platform)
) STRICT, WITHOUT ROWID;
