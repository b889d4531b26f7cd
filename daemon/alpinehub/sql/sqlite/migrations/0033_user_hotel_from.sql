-- From when on the account is given what comes; NULL: also what was there before.
ALTER TABLE account_hotel ADD COLUMN from_at INTEGER;
