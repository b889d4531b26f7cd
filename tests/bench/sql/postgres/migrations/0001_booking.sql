CREATE TABLE bench_inbox (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY, at BIGINT NOT NULL, body TEXT NOT NULL
);

CREATE TABLE bench_customer (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY, name TEXT NOT NULL, email TEXT COLLATE "C" NOT NULL
);

CREATE INDEX bench_customer_email ON bench_customer (email);

CREATE TABLE bench_reservation (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    customer_id TEXT COLLATE "C" NOT NULL REFERENCES bench_customer (id),
    at          BIGINT NOT NULL
);

CREATE TABLE bench_version (
    reservation_id TEXT COLLATE "C" NOT NULL REFERENCES bench_reservation (id),
    version        INTEGER NOT NULL,
    hash           TEXT NOT NULL,
    data           TEXT NOT NULL,
    at             BIGINT NOT NULL,
    PRIMARY KEY (reservation_id, version)
);
