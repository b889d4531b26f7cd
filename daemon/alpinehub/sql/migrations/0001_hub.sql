-- The hub's tables. Times are microseconds since the epoch, UTC; JSON is TEXT. Text in an index is
-- compared byte by byte, as on SQLite, so that a new C library on the server breaks no index.
--
-- On PostgreSQL some foreign keys are left out: those whose row the same unit of work has just written
-- or read, and which is never deleted before. Each check locks the row that it finds, and all webhooks
-- of a hotel shared the lock of its row, which was a quarter of a webhook's cost on the server. SQLite
-- has all of them, as they cost next to nothing there. The inbox has the foreign key to its source on
-- both, and thereby locks the source: granting a hotel to an account relies on it (lock_sources).

-- One row. The revision increases with each change of hotels, accounts or sources, so that a worker
-- finds by one look-up whether its cache of them is current.
CREATE TABLE directory (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision {bigint} NOT NULL
){strict};
INSERT INTO directory (id, revision) VALUES (1, 0);

CREATE TABLE hotel (
    id {serial},
    code {text} NOT NULL UNIQUE, -- AlpineBits HotelCode, 1 to 16 characters
    name TEXT NOT NULL,                 -- AlpineBits HotelName, 1 to 128 characters
    time_zone TEXT NOT NULL,            -- IANA name: the hotel's day
    language TEXT NOT NULL,             -- ISO 639-1, lower case
    region TEXT NOT NULL,               -- ISO 3166, upper case: country of national phone numbers
    report_email TEXT,                  -- recipients of the daily report, separated by commas
    created_at {bigint} NOT NULL,
    enabled_at {bigint},                  -- last enabled after it was disabled: reports begin then
    disabled_at {bigint},
    -- What an operator chose for one hotel.
    settings TEXT                       -- JSON of alpinehub.models.Settings; NULL: none
){strict};

-- A login of hotel software.
CREATE TABLE account (
    id {serial},
    name {text} NOT NULL UNIQUE,
    password TEXT NOT NULL,             -- scrypt, parameters and salt within
    created_at {bigint} NOT NULL,
    changed_at {bigint} NOT NULL,         -- last new password
    disabled_at {bigint},
    -- The password before the last rotation: still accepted until before_until.
    password_before TEXT,
    before_until {bigint},
    -- Last enabled after it was disabled: it counts as stale only some time after that.
    enabled_at {bigint}
){strict};

-- Which hotels an account reads. Each account has its own acknowledgements.
CREATE TABLE account_hotel (
    account_id {bigint} NOT NULL REFERENCES account (id),
    hotel_id {bigint} NOT NULL REFERENCES hotel (id),
    -- The account gets the guest requests from then on; NULL: also the older ones.
    from_at {bigint},
    PRIMARY KEY (account_id, hotel_id)
){keyed};
CREATE INDEX account_hotel_hotel ON account_hotel (hotel_id, account_id);

-- Where guest requests of one hotel come from.
CREATE TABLE source (
    id {serial},
    hotel_id {bigint} NOT NULL REFERENCES hotel (id),
    kind TEXT NOT NULL,                 -- which webhook: generic
    name {text} NOT NULL,     -- for people: website, shop
    secret {bytes} NOT NULL,              -- sealed with the master key: HMAC needs the plain text
    fingerprint {bytes} NOT NULL,         -- keyed hash of the secret: found by one look-up
    created_at {bigint} NOT NULL,
    changed_at {bigint} NOT NULL,         -- last new secret
    disabled_at {bigint},
    mapping TEXT,                       -- JSON; NULL: the mapping of its kind
    options TEXT,                       -- JSON; NULL: those of its kind
    secret_before {bytes},                -- sealed; still accepted until before_until
    fingerprint_before {bytes},
    before_until {bigint},
    -- Increases when a hotel is granted to an account. It is part of a key, so that on PostgreSQL a unit
    -- that makes a version meanwhile, and locks the source by a foreign key, runs again and sees the
    -- new account.
    readers_revision {bigint} NOT NULL DEFAULT 0,
    UNIQUE (hotel_id, name),
    UNIQUE (hotel_id, fingerprint)
){strict};
CREATE UNIQUE INDEX source_readers ON source (id, readers_revision);

-- A person, for one hotel. Each version of a guest request also stores what they wrote then.
CREATE TABLE customer (
    id {serial},
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    email {text},             -- lower case
    phone {text},             -- digits, + before a country code
    created_at {bigint} NOT NULL,
    -- The customer's newest data, and their consent to pass it to advertising platforms.
    first_name TEXT,
    last_name TEXT,
    city TEXT,
    postal_code TEXT,
    country TEXT,                       -- ISO 3166, upper case
    state TEXT,
    birth_date TEXT,                    -- YYYY-MM-DD
    gender TEXT,                        -- female, male
    language TEXT,
    consent INTEGER,                    -- 1 yes, 0 no, NULL never asked
    consent_at {bigint},
    -- 1: the primary is to look for duplicates (customers/duplicates.py).
    phone_due INTEGER NOT NULL DEFAULT 1 CHECK (phone_due IN (0, 1)),
    -- The last digits, which are the same in each way to write a number.
    phone_tail {text} GENERATED ALWAYS AS ({substr(phone, -6)|right(phone, 6)}) STORED
){strict};
CREATE UNIQUE INDEX customer_email ON customer (hotel_id, email) WHERE email IS NOT NULL;
-- With the e-mail address, so that one look-up is enough however many share the number.
CREATE INDEX customer_phone ON customer (hotel_id, phone_tail, email{| NULLS FIRST})
    WHERE phone_tail IS NOT NULL;
-- Customers without an e-mail address: two concurrent inserts of one number make one customer.
CREATE UNIQUE INDEX customer_without_email ON customer (hotel_id, phone)
    WHERE phone IS NOT NULL AND email IS NULL;
-- The few possible duplicates.
CREATE INDEX customer_phone_due ON customer (id) WHERE phone_due = 1;

-- The id is the AlpineBits UniqueID: 32 hex digits, in the order of time, so rows are appended.
CREATE TABLE reservation (
    id {text} NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 32),
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    source_id {bigint} NOT NULL{ REFERENCES source (id)|},          -- checked by the inbox
    external_id {text},       -- the source's own id
    customer_id {bigint} REFERENCES customer (id),
    version INTEGER NOT NULL,           -- the newest
    status TEXT NOT NULL CHECK (status IN ('request', 'reservation', 'cancelled')),
    created_at {bigint} NOT NULL,
    changed_at {bigint} NOT NULL,         -- of the newest version
    -- The status that hotel software reported.
    hotel_status TEXT,
    hotel_status_at {bigint},
    -- Position of the newest submission in the source's order: an older submission changes nothing.
    sequence {bigint},
    sent_at {bigint},
    -- Set: accounts that have not got the request do not get it any more (ends_on: after that day).
    ends_on TEXT,                       -- the last day of the stay, YYYY-MM-DD
    erased_at {bigint},
    withdrawn_at {bigint}                 -- an operator removed it from all lists
){keyed};
CREATE UNIQUE INDEX reservation_external ON reservation (source_id, external_id)
    WHERE external_id IS NOT NULL;
CREATE INDEX reservation_created ON reservation (hotel_id, created_at);
-- The requests of a customer: to merge, export and erase them.
CREATE INDEX reservation_customer ON reservation (customer_id) WHERE customer_id IS NOT NULL;

-- The versions of a guest request. id: in the order of their commits.
CREATE TABLE reservation_version (
    id {serial},
    reservation_id {text} NOT NULL{ REFERENCES reservation (id)|},
    version INTEGER NOT NULL,           -- 1, 2, ...
    content_hash {bytes} NOT NULL,        -- of what the source sent, normalised
    res_status TEXT NOT NULL            -- AlpineBits ResStatus
        CHECK (res_status IN ('Requested', 'Reserved', 'Modify', 'Cancelled')),
    data TEXT NOT NULL,                 -- JSON of alpinehub.reservations.ReservationData
    request_id TEXT NOT NULL,
    created_at {bigint} NOT NULL,
    UNIQUE (reservation_id, version)
){strict};

-- Submissions as they arrived.
CREATE TABLE inbox (
    id {serial},
    source_id {bigint} NOT NULL REFERENCES source (id),
    external_id TEXT,
    received_at {bigint} NOT NULL,
    headers TEXT NOT NULL,              -- JSON; never a secret or a signature
    body {bytes} NOT NULL,
    state {text} NOT NULL CHECK (state IN ('mapped', 'review', 'rejected')),
    error TEXT,
    reservation_id {text}{ REFERENCES reservation (id)|},
    request_id TEXT NOT NULL,
    -- The result: new, changed, duplicate, test, spam. NULL: in review.
    outcome TEXT,
    handled_at {bigint}                   -- when state and outcome were decided
){strict};
CREATE INDEX inbox_review ON inbox (id) WHERE state = 'review';
-- The submissions of a reservation: for its history, and to erase them.
CREATE INDEX inbox_reservation ON inbox (reservation_id) WHERE reservation_id IS NOT NULL;

-- One version for one account. The row is made with the version, for each account of the hotel.
-- waiting = 1: the newest version, not acknowledged by the account. By its partial index a list of
-- waiting requests costs no more with a longer history. A newer version sets waiting = 0 in the row of
-- the older, which stays: a late acknowledgement of it is still recorded. Account and hotel come from
-- account_hotel and are never deleted; with foreign keys on PostgreSQL every webhook of a hotel would
-- lock the same two rows, which took more than half of the time of this table's INSERT.
CREATE TABLE delivery (
    reservation_id {text} NOT NULL{ REFERENCES reservation (id)|},
    account_id {bigint} NOT NULL{ REFERENCES account (id)|},
    version INTEGER NOT NULL,
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    unique_id_type INTEGER NOT NULL CHECK (unique_id_type IN (14, 15)),
    waiting INTEGER NOT NULL CHECK (waiting IN (0, 1)),
    sent_at {bigint},                   -- first sent since it was made, or resent by an operator
    ever_sent INTEGER NOT NULL DEFAULT 0 CHECK (ever_sent IN (0, 1)),
    acked_at {bigint},
    rejected_text TEXT,                 -- the hotel's reason for rejecting it
    -- Why the account's protocol cannot carry it (alpinebits/guest.py), the same for people, and since when:
    -- all three, or none.
    undeliverable_code TEXT,
    undeliverable_text TEXT,
    undeliverable_at {bigint},
    rendered TEXT,                      -- protocol and renderer revision in which it was found valid
    client_id TEXT,                     -- X-AlpineBits-ClientID that fetched it when it was recorded last
    cancelled_at {bigint},                -- an operator removed it from the list
    PRIMARY KEY (reservation_id, account_id, version)
){keyed};
CREATE INDEX delivery_waiting ON delivery (account_id, hotel_id, reservation_id) WHERE waiting = 1;
-- Undeliverable versions that wait: for the review list.
CREATE INDEX delivery_undeliverable ON delivery (hotel_id, reservation_id)
    WHERE waiting = 1 AND undeliverable_code IS NOT NULL;
-- Versions that were sent or acknowledged on a day, for the daily report.
CREATE INDEX delivery_sent ON delivery (hotel_id, sent_at) WHERE sent_at IS NOT NULL;
CREATE INDEX delivery_acked ON delivery (hotel_id, acked_at) WHERE acked_at IS NOT NULL;

-- Events of a version after it arrived; append-only.
CREATE TABLE reservation_event (
    id {serial},
    reservation_id {text} NOT NULL{ REFERENCES reservation (id)|},
    version INTEGER NOT NULL,
    event TEXT NOT NULL,                -- by an account: delivered, acknowledged, rejected; ...
    account_id {bigint}{ REFERENCES account (id)|},  -- as in delivery
    at {bigint} NOT NULL,
    request_id TEXT NOT NULL,
    -- Further data of the event: JSON, nothing that a guest wrote.
    detail TEXT
){strict};
CREATE INDEX reservation_event_reservation ON reservation_event (reservation_id);

-- The history of a reservation: its versions and their events. In the order of (at, id).
CREATE VIEW reservation_history AS
SELECT id, reservation_id, version, event, account_id, at, request_id, detail
FROM reservation_event
UNION ALL
SELECT 0, reservation_id, version,
    CASE WHEN version = 1 THEN 'received' WHEN res_status = 'Cancelled' THEN 'cancelled'
        ELSE 'modified' END,
    NULL, created_at, request_id, NULL
FROM reservation_version;

-- Hourly counts of a hotel's submissions that became no version (hour_at: the start of the hour).
CREATE TABLE hotel_hour (
    hotel_id {bigint} NOT NULL REFERENCES hotel (id),
    hour_at {bigint} NOT NULL,
    kind {text} NOT NULL CHECK (kind IN ('duplicate', 'test', 'spam', 'error')),
    submissions {bigint} NOT NULL,
    PRIMARY KEY (hotel_id, hour_at, kind)
){keyed};

-- One row for each, until the primary adds it to hotel_hour: workers do not wait for one hotel's row.
CREATE TABLE hour_change (
    id {serial},
    hotel_id {bigint} NOT NULL,
    hour_at {bigint} NOT NULL,
    kind {text} NOT NULL
){strict};

-- Reports that were made, so that due ones are found without computing each day again.
CREATE TABLE daily_report (
    day {text} NOT NULL,      -- the hotel's local day, YYYY-MM-DD
    hotel_id {bigint} NOT NULL REFERENCES hotel (id),
    PRIMARY KEY (day, hotel_id)
){keyed};

-- Shapes of the forms of a source: names of fields, never values.
CREATE TABLE form (
    id {serial},
    source_id {bigint} NOT NULL REFERENCES source (id),
    form_key {text} NOT NULL, -- the form's own id, else its name, else ''
    shape {bytes} NOT NULL,               -- hash of its sorted keys
    fields TEXT NOT NULL,               -- JSON [[key, label], ...]
    first_seen_at {bigint} NOT NULL,
    last_seen_at {bigint} NOT NULL,       -- to the hour
    UNIQUE (source_id, form_key, shape)
){strict};

-- The last contact of hotel software, for each hotel that it called about.
CREATE TABLE contact (
    account_id {bigint} NOT NULL{ REFERENCES account (id)|},
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    called_at {bigint},                   -- with whatever message
    polled_at {bigint},
    acked_at {bigint},
    network TEXT,                         -- of the client, as wrong passwords are counted (login.py)
    stale_at {bigint},                    -- when the operator was alerted that it does not poll
    PRIMARY KEY (account_id, hotel_id)
){keyed};

-- What an account's software and this server last agreed on.
CREATE TABLE handshake (
    account_id {bigint} NOT NULL{ REFERENCES account (id)|},
    protocol {text} NOT NULL,
    capabilities TEXT NOT NULL,         -- JSON {action: [support, ...]}
    PRIMARY KEY (account_id, protocol)
){keyed};

-- Hotel software that does not poll: guest requests are pushed to it.
CREATE TABLE push_target (
    account_id {bigint} NOT NULL PRIMARY KEY{ REFERENCES account (id)|},
    url TEXT NOT NULL,
    login TEXT NOT NULL,
    secret {bytes} NOT NULL,              -- sealed with the master key
    protocol {text} NOT NULL,
    gzip INTEGER NOT NULL CHECK (gzip IN (0, 1)), -- bodies are sent compressed
    disabled_at {bigint}
){keyed};

-- Hotel data from hotel software. A concurrent change is noticed by the revision.
CREATE TABLE hotel_document (
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    kind {text} NOT NULL CHECK (kind IN ('freerooms', 'inventory', 'info')),
    revision {bigint} NOT NULL,
    protocol {text} NOT NULL, -- of the message
    account_id {bigint} NOT NULL{ REFERENCES account (id)|}, -- the sender
    body {bytes} NOT NULL,                -- zlib: JSON of freerooms, else canonical XML
    complete_at {bigint},                 -- last complete set
    changed_at {bigint} NOT NULL,
    PRIMARY KEY (hotel_id, kind)
){keyed};

CREATE TABLE rate_plan (
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    code {text} NOT NULL,
    protocol {text} NOT NULL,
    body {bytes} NOT NULL,                -- zlib: canonical XML
    changed_at {bigint} NOT NULL,
    PRIMARY KEY (hotel_id, code)
){keyed};

CREATE TABLE activity (
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    context {text} NOT NULL,  -- the namespace of event_id
    event_id {text} NOT NULL,
    protocol {text} NOT NULL,
    body {bytes} NOT NULL,                -- zlib: canonical XML
    changed_at {bigint} NOT NULL,
    PRIMARY KEY (hotel_id, context, event_id)
){keyed};

-- Each inbound message of hotel software, and its answer.
CREATE TABLE inbound_message (
    id {serial},
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    account_id {bigint} NOT NULL{ REFERENCES account (id)|},
    action TEXT NOT NULL,
    protocol {text} NOT NULL,
    client_id TEXT,
    request_id TEXT NOT NULL,
    received_at {bigint} NOT NULL,
    size_bytes {bigint} NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('success', 'advisory', 'warning', 'error')),
    problem TEXT                        -- the first finding of the answer
){strict};
CREATE INDEX inbound_message_hotel ON inbound_message (hotel_id, id);

-- Pushes to hotel software, hotel by hotel: one that fails delays no other.
CREATE TABLE push_hotel (
    account_id {bigint} NOT NULL{ REFERENCES account (id)|},
    hotel_id {bigint} NOT NULL{ REFERENCES hotel (id)|},
    due_at {bigint},                      -- when a pending push.due is due; NULL: none is pending
    failures INTEGER NOT NULL,          -- since the last success
    last_error TEXT,
    pushed_at {bigint},                   -- last success
    PRIMARY KEY (account_id, hotel_id)
){keyed};

-- Token buckets of public forms (webhooks/form_limit.py). A bucket is full without a row, and from
-- full_at on.
CREATE TABLE form_limit (
    key {bytes} NOT NULL PRIMARY KEY,     -- keyed hash of an address, a source, a proof of work
    full_at {bigint} NOT NULL             -- when the bucket is full again
){keyed};

-- What waits for an account: the newest version of a request, not acknowledged. A cancellation only
-- if the request was sent to the account.
CREATE VIEW waiting_delivery AS
SELECT d.reservation_id, d.account_id, d.version, d.hotel_id, d.sent_at, d.rendered,
    d.undeliverable_code, d.undeliverable_text
FROM delivery d
WHERE d.waiting = 1 AND (d.unique_id_type = 14 OR EXISTS (
    SELECT 1 FROM delivery given
    WHERE given.reservation_id = d.reservation_id AND given.account_id = d.account_id
        AND given.version < d.version AND given.ever_sent = 1));

-- What an account can still get: account and hotel are enabled, it reads the hotel, and its version
-- of AlpineBits can carry the request. Retention does not delete a request that is in this view.
CREATE VIEW deliverable AS
SELECT d.reservation_id, d.account_id, d.version, d.hotel_id
FROM waiting_delivery d
JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id
JOIN account u ON u.id = d.account_id
JOIN hotel h ON h.id = d.hotel_id
WHERE u.disabled_at IS NULL AND h.disabled_at IS NULL
    AND d.undeliverable_code IS NULL;
