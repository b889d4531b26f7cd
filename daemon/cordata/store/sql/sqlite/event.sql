-- Statements for SQLite only; those for both stores are in ../event.sql.

-- name: event.mark
-- The highest position given so far and, looked up after it, the transactions in flight that write
-- events: none here, since one process writes at a time.
SELECT coalesce(max(position), 0) AS position, '[]' AS in_flight FROM stored_event;

-- name: event.of_category
SELECT position, stream, version, type, payload, headers, created_at
FROM stored_event INDEXED BY stored_event_category
WHERE category = :category AND position > :after AND position <= :until
ORDER BY position LIMIT :limit;

-- name: event.of_category_back
SELECT position, stream, version, type, payload, headers, created_at
FROM stored_event INDEXED BY stored_event_category
WHERE category = :category AND position < :before ORDER BY position DESC LIMIT :limit;

-- name: event.of_partitions
-- The events of some partitions of a subscription.
SELECT position, stream, version, type, payload, headers, created_at,
       bucket % :partitions AS partition
FROM stored_event INDEXED BY stored_event_category
WHERE category = :category AND position > :after AND position <= :until
    AND bucket % :partitions IN (SELECT value FROM json_each(:wanted))
ORDER BY position LIMIT :limit;
