-- The event store: append to a stream, read by stream, category or position.

-- name: event.version
SELECT version FROM event_stream WHERE stream = :stream;

-- name: event.open
-- The first events of a stream; no row changed: it is there already.
INSERT INTO event_stream (stream, version) VALUES (:stream, :count)
ON CONFLICT (stream) DO NOTHING;

-- name: event.advance
-- More events of a stream whose version is known; no row changed: it is another one.
UPDATE event_stream SET version = version + :count WHERE stream = :stream AND version = :expected;

-- name: event.extend
-- More events of a stream, or its first, whatever its version.
INSERT INTO event_stream (stream, version) VALUES (:stream, :count)
ON CONFLICT (stream) DO UPDATE SET version = event_stream.version + excluded.version
RETURNING version;

-- name: event.add
INSERT INTO stored_event (stream, version, category, bucket, type, payload, headers, created_at)
VALUES (:stream, :version, :category, :bucket, :type, :payload, :headers, :created_at);

-- name: event.mark
-- The highest position given so far and, looked up after it, the transactions in flight that write
-- events. Who writes one locks the table (in a mode that hinders nobody) before a position is given
-- to it, and gives that lock back after others can see what he committed: so whoever was given a
-- position up to the mark is in the list, or has ended. The outer row is what makes the subquery
-- run after the sequence was read.
SELECT CASE WHEN given.is_called THEN given.last_value ELSE 0 END AS position,
       (SELECT coalesce(json_agg(l.virtualtransaction || ' of process ' || l.pid), '[]')::text
        FROM pg_locks AS l
        WHERE l.locktype = 'relation' AND l.relation = 'stored_event'::regclass
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND l.mode = 'RowExclusiveLock' AND l.granted AND given.last_value > 0) AS in_flight
FROM stored_event_position_seq AS given;

-- name: event.of_stream
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE stream = :stream AND version > :after ORDER BY version LIMIT :limit;

-- name: event.of_stream_back
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE stream = :stream AND version < :before ORDER BY version DESC LIMIT :limit;

-- name: event.of_category
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE category = :category AND position > :after AND position <= :until
ORDER BY category, position LIMIT :limit;

-- name: event.of_category_back
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE category = :category AND position < :before
ORDER BY category DESC, position DESC LIMIT :limit;

-- name: event.of_all
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE position > :after AND position <= :until ORDER BY position LIMIT :limit;

-- name: event.of_all_back
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE position < :before ORDER BY position DESC LIMIT :limit;

-- name: event.of_partitions
-- The events of some partitions of a subscription.
SELECT position, stream, version, type, payload, headers, created_at,
       bucket % :partitions::integer AS partition
FROM stored_event
WHERE category = :category AND position > :after AND position <= :until
    AND bucket % :partitions::integer
        = ANY (ARRAY(SELECT json_array_elements_text(:wanted::json)::integer))
ORDER BY category, position LIMIT :limit;
