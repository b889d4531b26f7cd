-- The hub's tables, first part. Times are microseconds since the epoch, UTC; JSON is TEXT.

-- One row: goes up with each change of hotels, accounts or sources, so that a worker sees by one
-- look-up whether what it remembers of them still holds.
CREATE TABLE directory (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL
) STRICT;
INSERT INTO directory (id, revision) VALUES (1, 0);

CREATE TABLE hotel (
    id INTEGER PRIMARY KEY,
    code TEXT NOT NULL UNIQUE,          -- AlpineBits HotelCode, 1 to 16 characters
    name TEXT NOT NULL,                 -- AlpineBits HotelName, 1 to 128 characters
    time_zone TEXT NOT NULL,            -- IANA name: the hotel's day
    language TEXT NOT NULL,             -- ISO 639-1, lower case
    region TEXT NOT NULL,               -- ISO 3166, upper case: country of national phone numbers
    report_email TEXT,                  -- who gets the daily report: addresses, commas between
    created_at INTEGER NOT NULL,
    enabled_at INTEGER,                 -- again, after it was disabled: reports begin anew then
    disabled_at INTEGER
) STRICT;

-- A login of hotel software.
CREATE TABLE account (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    password TEXT NOT NULL,             -- scrypt, parameters and salt within
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,        -- last new password
    disabled_at INTEGER
) STRICT;

-- Which hotels an account reads. His acknowledgements are his own.
CREATE TABLE account_hotel (
    account_id INTEGER NOT NULL REFERENCES account (id),
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    PRIMARY KEY (account_id, hotel_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX account_hotel_hotel ON account_hotel (hotel_id, account_id);

-- Where guest requests of one hotel come from.
CREATE TABLE source (
    id INTEGER PRIMARY KEY,
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    kind TEXT NOT NULL,                 -- which webhook: generic
    name TEXT NOT NULL,                 -- for people: website, shop
    secret BLOB NOT NULL,               -- sealed with the master key: HMAC needs the plain text
    fingerprint BLOB NOT NULL,          -- keyed hash of the secret: found by one look-up
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,        -- last new secret
    disabled_at INTEGER,
    UNIQUE (hotel_id, name),
    UNIQUE (hotel_id, fingerprint)
) STRICT;

-- A person, per hotel. What he wrote about himself is kept with each version.
CREATE TABLE customer (
    id INTEGER PRIMARY KEY,
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    email TEXT,                         -- lower case
    phone TEXT,                         -- digits, + before a country code
    created_at INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX customer_email ON customer (hotel_id, email) WHERE email IS NOT NULL;
-- With the address: found at once, however many share the number.
CREATE INDEX customer_phone ON customer (hotel_id, phone, email) WHERE phone IS NOT NULL;
-- One of whom the number is all that is known: two at once are one.
CREATE UNIQUE INDEX customer_nameless ON customer (hotel_id, phone)
    WHERE phone IS NOT NULL AND email IS NULL;

-- The id is the AlpineBits UniqueID: 32 hex digits, in the order of time, so rows are appended.
CREATE TABLE reservation (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 32),
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    source_id INTEGER NOT NULL REFERENCES source (id),
    external_id TEXT,                   -- the source's own id
    customer_id INTEGER REFERENCES customer (id),
    version INTEGER NOT NULL,           -- the newest
    status TEXT NOT NULL CHECK (status IN ('request', 'reservation', 'cancelled')),
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL         -- of the newest version
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX reservation_external ON reservation (source_id, external_id)
    WHERE external_id IS NOT NULL;
CREATE INDEX reservation_created ON reservation (hotel_id, created_at);

-- What was said, each time. id: the order in which versions were committed.
CREATE TABLE reservation_version (
    id INTEGER PRIMARY KEY,
    reservation_id TEXT NOT NULL REFERENCES reservation (id),
    version INTEGER NOT NULL,           -- 1, 2, ...
    content_hash BLOB NOT NULL,         -- of what the source sent, normalised
    res_status TEXT NOT NULL            -- AlpineBits ResStatus
        CHECK (res_status IN ('Requested', 'Reserved', 'Modify', 'Cancelled')),
    data TEXT NOT NULL,                 -- JSON of alpinehub.reservations.ReservationData
    request_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (reservation_id, version)
) STRICT;

-- What came in, as it came.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY,
    source_id INTEGER NOT NULL REFERENCES source (id),
    external_id TEXT,
    received_at INTEGER NOT NULL,
    headers TEXT NOT NULL,              -- JSON; never a secret or a signature
    body BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('received', 'mapped', 'review', 'rejected')),
    error TEXT,
    reservation_id TEXT REFERENCES reservation (id),
    request_id TEXT NOT NULL
) STRICT;
CREATE INDEX inbox_open ON inbox (state, id) WHERE state IN ('received', 'review');

-- One version for one account. The row is made with the version, for each account of the hotel.
-- waiting = 1: the newest version, not acknowledged by him; so the list of what waits for an account
-- costs what waits, however much history there is. A newer version ends the waiting of the older,
-- which keeps its row: a late acknowledgement of it is still recorded.
CREATE TABLE delivery (
    reservation_id TEXT NOT NULL REFERENCES reservation (id),
    account_id INTEGER NOT NULL REFERENCES account (id),
    version INTEGER NOT NULL,
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    unique_id_type INTEGER NOT NULL CHECK (unique_id_type IN (14, 15)),
    waiting INTEGER NOT NULL CHECK (waiting IN (0, 1)),
    first_sent_at INTEGER,
    last_sent_at INTEGER,
    acked_at INTEGER,
    rejected_text TEXT,                  -- he took it and said why he cannot use it
    undeliverable_text TEXT,                     -- why his protocol version cannot carry it; it keeps waiting
    PRIMARY KEY (reservation_id, account_id, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX delivery_waiting ON delivery (account_id, hotel_id, reservation_id) WHERE waiting = 1;

-- The trail of a reservation: what became of it, appended only.
CREATE TABLE reservation_history (
    id INTEGER PRIMARY KEY,
    reservation_id TEXT NOT NULL REFERENCES reservation (id),
    version INTEGER NOT NULL,
    event TEXT NOT NULL,                -- received, modified, cancelled; by an account: delivered,
                                        -- acknowledged, refused
    account_id INTEGER REFERENCES account (id),
    at INTEGER NOT NULL,
    request_id TEXT NOT NULL
) STRICT;
CREATE INDEX reservation_history_reservation ON reservation_history (reservation_id);

-- Hourly counts of a hotel (hour_at: the start of the hour).
CREATE TABLE hotel_hour (
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    hour_at INTEGER NOT NULL,
    modified INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (hotel_id, hour_at)
) STRICT, WITHOUT ROWID;
-- What is still to be added to hotel_hour: folded in by the primary, so that no two workers wait for
-- one hotel's row.
CREATE TABLE hour_change (
    id INTEGER PRIMARY KEY,
    hotel_id INTEGER NOT NULL,
    hour_at INTEGER NOT NULL,
    modified INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Reports made, so that due ones are found without asking about every day again.
CREATE TABLE daily_report (
    day TEXT NOT NULL,                  -- the hotel's local day, YYYY-MM-DD
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    recipients INTEGER NOT NULL,        -- 0: nobody was to get it
    made_at INTEGER NOT NULL,
    PRIMARY KEY (day, hotel_id)
) STRICT, WITHOUT ROWID;
