-- Statements for PostgreSQL only; those for both stores are in ../event.sql.

-- name: event.mark
-- The highest position given so far and, looked up after it, the transactions in flight that write
-- events. A transaction that writes an event locks the table (in a mode that blocks no other) before
-- the event gets its position, and unlocks it after its commit is visible: so each transaction that got
-- a position up to the mark is in the list, or has ended. Because of the outer row the subquery runs
-- after the sequence was read.
SELECT CASE WHEN given.is_called THEN given.last_value ELSE 0 END AS position,
       (SELECT coalesce(json_agg(l.virtualtransaction || ' of process ' || l.pid), '[]')::text
        FROM pg_locks AS l
        WHERE l.locktype = 'relation' AND l.relation = 'stored_event'::regclass
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND l.mode = 'RowExclusiveLock' AND l.granted AND given.last_value > 0) AS in_flight
FROM stored_event_position_seq AS given;
