-- What is brought to hotel software, hotel by hotel: one that fails delays no other.
CREATE TABLE push_hotel (
    account_id BIGINT NOT NULL,
    hotel_id BIGINT NOT NULL,
    due_at BIGINT,                      -- a push.due is on its way for then; NULL: none is
    failures INTEGER NOT NULL,          -- since the last success
    last_error TEXT,
    pushed_at BIGINT,                   -- last success
    PRIMARY KEY (account_id, hotel_id)
);
