CREATE TABLE bench_inbox (
    id {text} NOT NULL PRIMARY KEY, at {bigint} NOT NULL, body TEXT NOT NULL
){keyed};

CREATE TABLE bench_customer (
    id {text} NOT NULL PRIMARY KEY, name TEXT NOT NULL, email {text} NOT NULL
){strict};

CREATE INDEX bench_customer_email ON bench_customer (email);

CREATE TABLE bench_reservation (
    id          {text} NOT NULL PRIMARY KEY,
    customer_id {text} NOT NULL REFERENCES bench_customer (id),
    at          {bigint} NOT NULL
){strict};

CREATE TABLE bench_version (
    reservation_id {text} NOT NULL REFERENCES bench_reservation (id),
    version        INTEGER NOT NULL,
    hash           TEXT NOT NULL,
    data           TEXT NOT NULL,
    at             {bigint} NOT NULL,
    PRIMARY KEY (reservation_id, version)
){keyed};
