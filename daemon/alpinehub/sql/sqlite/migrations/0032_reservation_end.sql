-- What an account that did not get a request before is not given any more.
ALTER TABLE reservation ADD COLUMN ends_on TEXT;        -- the last day of the stay, YYYY-MM-DD
ALTER TABLE reservation ADD COLUMN erased_at INTEGER;
ALTER TABLE reservation ADD COLUMN withdrawn_at INTEGER; -- an operator took it from every list
