-- Statements for SQLite only; those for both stores are in ../inbox.sql.

-- name: inbox_lock
-- No lock is needed: a unit of work that writes runs alone.
SELECT i.state FROM inbox i WHERE i.id = :id
