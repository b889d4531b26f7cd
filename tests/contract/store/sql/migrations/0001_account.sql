CREATE TABLE account (
    id {text} NOT NULL PRIMARY KEY,
    balance {bigint} NOT NULL CHECK (balance >= 0)
){strict};

CREATE TABLE entry (
    id {serial},
    account_id {text} NOT NULL REFERENCES account (id),
    amount {bigint} NOT NULL,
    note {text} NOT NULL UNIQUE
){strict};

-- The reference is checked at the COMMIT.
CREATE TABLE promise (
    account_id {text} NOT NULL REFERENCES account (id) DEFERRABLE INITIALLY DEFERRED
){strict};
