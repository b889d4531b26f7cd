-- Statements for PostgreSQL only; those for both stores are in ../inbox.sql.

-- name: inbox_lock
-- newest
-- Locks the row, so that no other process settles it, and its source, so that the hotel is not granted
-- to an account meanwhile (lock_sources).
SELECT i.state FROM inbox i JOIN source s ON s.id = i.source_id WHERE i.id = :id
FOR NO KEY UPDATE OF i FOR KEY SHARE OF s
