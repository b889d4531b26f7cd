-- The newest that came of it, in the source's own order: what is older is not a change.
ALTER TABLE reservation ADD COLUMN sequence BIGINT;
ALTER TABLE reservation ADD COLUMN sent_at BIGINT;
