-- What a platform may be asked by: SHA-256 of each field, 32 bytes; NULL: nothing to hash.
CREATE TABLE customer_hash (
    customer_id BIGINT NOT NULL,
    platform TEXT COLLATE "C" NOT NULL CHECK (platform IN ('meta', 'google')),
    rule INTEGER NOT NULL,              -- version of the rules that they were made by
    made_at BIGINT NOT NULL,
    email BYTEA,
    phone BYTEA,
    first_name BYTEA,
    last_name BYTEA,
    city BYTEA,
    postal_code BYTEA,
    country BYTEA,
    state BYTEA,
    birth_date BYTEA,
    gender BYTEA,
    PRIMARY KEY (customer_id, platform)
);
