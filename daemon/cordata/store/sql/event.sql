-- The event store: append to a stream, read by stream, category or position.

-- name: event.version
SELECT version FROM event_stream WHERE stream = :stream;

-- name: event.open
-- For the first events of a stream; no row changed: the stream exists already.
INSERT INTO event_stream (stream, version) VALUES (:stream, :count)
ON CONFLICT (stream) DO NOTHING;

-- name: event.advance
-- For more events of a stream with an expected version; no row changed: it has another version.
UPDATE event_stream SET version = version + :count WHERE stream = :stream AND version = :expected;

-- name: event.extend
-- For more events of a stream, or its first, whatever its version.
INSERT INTO event_stream (stream, version) VALUES (:stream, :count)
ON CONFLICT (stream) DO UPDATE SET version = event_stream.version + excluded.version
RETURNING version;

-- name: event.add
INSERT INTO stored_event (stream, version, category, bucket, type, payload, headers, created_at)
VALUES (:stream, :version, :category, :bucket, :type, :payload, :headers, :created_at);

-- name: event.of_stream
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE stream = :stream AND version > :after ORDER BY version LIMIT :limit;

-- name: event.of_stream_back
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE stream = :stream AND version < :before ORDER BY version DESC LIMIT :limit;

-- name: event.of_all
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE position > :after AND position <= :until ORDER BY position LIMIT :limit;

-- name: event.of_all_back
SELECT position, stream, version, type, payload, headers, created_at FROM stored_event
WHERE position < :before ORDER BY position DESC LIMIT :limit;

-- name: event.of_category
SELECT position, stream, version, type, payload, headers, created_at
FROM stored_event{ INDEXED BY stored_event_category|}
WHERE category = :category AND position > :after AND position <= :until
ORDER BY {|category, }position LIMIT :limit;

-- name: event.of_category_back
SELECT position, stream, version, type, payload, headers, created_at
FROM stored_event{ INDEXED BY stored_event_category|}
WHERE category = :category AND position < :before
ORDER BY {|category DESC, }position DESC LIMIT :limit;

-- name: event.of_partitions
-- The events of some partitions of a subscription.
SELECT position, stream, version, type, payload, headers, created_at,
       bucket % CAST(:partitions AS INTEGER) AS partition
FROM stored_event{ INDEXED BY stored_event_category|}
WHERE category = :category AND position > :after AND position <= :until
    AND bucket % CAST(:partitions AS INTEGER) {IN (SELECT value FROM json_each(:wanted))
        |= ANY (ARRAY(SELECT json_array_elements_text(:wanted::json)::integer))}
ORDER BY {|category, }position LIMIT :limit;
