-- Statements for SQLite only; those for both stores are in ../event.sql.

-- name: event.mark
-- The highest position given so far and, looked up after it, the transactions in flight that write
-- events: none here, since one process writes at a time.
SELECT coalesce(max(position), 0) AS position, '[]' AS in_flight FROM stored_event;
