-- Goes up when a hotel is granted to an account. It is part of a key, so that on PostgreSQL whoever makes
-- a version meanwhile, and locks the source by a foreign key, runs again and sees the new reader.
ALTER TABLE source ADD COLUMN readers_revision BIGINT NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX source_readers ON source (id, readers_revision);
