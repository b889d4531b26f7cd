-- What is brought to hotel software, hotel by hotel: one that fails delays no other.
CREATE TABLE push_hotel (
    account_id INTEGER NOT NULL REFERENCES account (id),
    hotel_id INTEGER NOT NULL REFERENCES hotel (id),
    due_at INTEGER,                     -- a push.due is on its way for then; NULL: none is
    failures INTEGER NOT NULL,          -- since the last success
    last_error TEXT,
    pushed_at INTEGER,                  -- last success
    PRIMARY KEY (account_id, hotel_id)
) STRICT, WITHOUT ROWID;
