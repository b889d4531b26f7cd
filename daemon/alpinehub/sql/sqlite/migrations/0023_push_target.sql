-- These are of each hotel now: push_hotel.
ALTER TABLE push_target DROP COLUMN failures;
ALTER TABLE push_target DROP COLUMN last_error;
ALTER TABLE push_target DROP COLUMN next_at;
