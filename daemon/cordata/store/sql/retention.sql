-- Retention on both stores: the primary deletes in small batches.

-- name: retention.page
-- Positions grow with time, so old events are a range at the front; no index on the age is needed.
-- An event that some group has not handled stays, however old it is. (Scalar subqueries: looked up
-- by index; PostgreSQL reads the whole table for NOT EXISTS.)
SELECT e.position, e.id, e.created_at,
       e.due_at < :before AND e.created_at < :before
           AND (SELECT 1 FROM message AS m WHERE m.event_id = e.id LIMIT 1) IS NULL
           AND (SELECT 1 FROM redis_sent AS s WHERE s.event_id = e.id LIMIT 1) IS NULL AS old
FROM event AS e WHERE e.position > :after ORDER BY e.position LIMIT :limit;

-- name: retention.lock
-- A replay locks its events, too. On PostgreSQL the queries after this one see its writes.
SELECT id FROM event WHERE id IN :event_ids[text] ORDER BY position;

-- name: retention.closed
-- Events without an open message.
SELECT e.id FROM event AS e
WHERE e.id IN :event_ids[text]
    AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.event_id = e.id);

-- name: retention.handled
DELETE FROM handled WHERE event_id IN :event_ids[text];

-- name: retention.event
DELETE FROM event WHERE id IN :event_ids[text];

-- name: retention.orphans
-- Messages of groups that were removed while a process published.
DELETE FROM message WHERE (event_id, "group") IN (
    SELECT m.event_id, m."group" FROM message AS m
    WHERE m.state IN ('ready', 'scheduled') AND NOT EXISTS (
        SELECT 1 FROM consumer_group AS g WHERE g."group" = m."group")
    LIMIT :limit);

-- name: retention.idempotency
DELETE FROM idempotency WHERE (scope, key) IN (
    SELECT scope, key FROM idempotency WHERE created_at < :before ORDER BY created_at LIMIT :limit);

-- name: retention.mail
DELETE FROM mail WHERE id IN (
    SELECT id FROM mail
    WHERE state IN ('sent', 'failed') AND created_at < :before ORDER BY created_at LIMIT :limit);
