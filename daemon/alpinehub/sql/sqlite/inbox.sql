-- Of SQLite alone; what both stores run is in ../inbox.sql.

-- name: inbox_hold
-- No lock is needed: a unit of work that writes runs alone.
SELECT i.state FROM inbox i WHERE i.id = :id
