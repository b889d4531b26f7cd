CREATE TABLE account (
    id      TEXT    NOT NULL PRIMARY KEY,
    balance INTEGER NOT NULL CHECK (balance >= 0)
) STRICT;

CREATE TABLE entry (
    id         INTEGER PRIMARY KEY,
    account_id TEXT    NOT NULL REFERENCES account (id),
    amount     INTEGER NOT NULL,
    note       TEXT    NOT NULL UNIQUE
) STRICT;
