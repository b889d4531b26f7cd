-- Of SQLite alone; what both stores run is in ../inbox.sql.

-- name: inbox_hold
-- Before what it becomes is written: the unit has the store to itself.
SELECT i.state FROM inbox i WHERE i.id = :id
