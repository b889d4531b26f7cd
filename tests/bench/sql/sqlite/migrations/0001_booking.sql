CREATE TABLE bench_inbox (
    id TEXT NOT NULL PRIMARY KEY, at INTEGER NOT NULL, body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE bench_customer (
    id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL
) STRICT;

CREATE INDEX bench_customer_email ON bench_customer (email);

CREATE TABLE bench_reservation (
    id          TEXT    NOT NULL PRIMARY KEY,
    customer_id TEXT    NOT NULL REFERENCES bench_customer (id),
    at          INTEGER NOT NULL
) STRICT;

CREATE TABLE bench_version (
    reservation_id TEXT    NOT NULL REFERENCES bench_reservation (id),
    version        INTEGER NOT NULL,
    hash           TEXT    NOT NULL,
    data           TEXT    NOT NULL,
    at             INTEGER NOT NULL,
    PRIMARY KEY (reservation_id, version)
) STRICT, WITHOUT ROWID;
