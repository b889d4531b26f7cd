-- What a lenient source needs beside its secret, and the secret that it had before a rotation.
--
-- From here on a migration alters one table: it waits for one lock and holds no other meanwhile, so
-- no worker and it can wait for each other. And it only adds: what an older program writes leaves
-- out the new columns, and what it reads does not name them. So that goes on beside the new one,
-- and after it when an upgrade is taken back; nothing has to be undone for that.
ALTER TABLE source ADD COLUMN mapping TEXT;         -- JSON; NULL: the mapping of its kind
ALTER TABLE source ADD COLUMN options TEXT;         -- JSON; NULL: those of its kind
ALTER TABLE source ADD COLUMN secret_before BLOB;   -- sealed; still taken until before_until
ALTER TABLE source ADD COLUMN fingerprint_before BLOB;
ALTER TABLE source ADD COLUMN before_until INTEGER;
