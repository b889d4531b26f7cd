-- What the primary deletes, in small batches.

-- name: retention.outbox_page
-- Ids grow with time, so old entries are a range at the front; no index on the age is needed.
-- What a group has not taken from its stream yet stays, however old it is.
SELECT id, created_at,
       state = 'published' AND published_at < :before
           AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.outbox_id = page.id)
           AND NOT EXISTS (SELECT 1 FROM redis_group AS g
                           WHERE g.type = page.type AND g.position < page.position AND g.level =
               CASE WHEN page.lane = 'backfill' THEN 'backfill' WHEN page.priority > 0 THEN 'urgent'
                    WHEN page.priority < 0 THEN 'low' ELSE 'normal' END) AS old
FROM (SELECT id, created_at, state, published_at, type, lane, priority, position FROM outbox
      WHERE id > :after ORDER BY id LIMIT :limit) AS page;

-- name: retention.outbox
DELETE FROM outbox
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'published'
    AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.outbox_id = outbox.id);

-- name: retention.seen_end
-- Up to when the next so many marks were written.
SELECT created_at FROM seen WHERE created_at > :after AND created_at < :before
ORDER BY created_at LIMIT 1 OFFSET :limit;

-- name: retention.seen
-- Not the marks of an event that is still in the outbox, because it is somebody's dead letter, say:
-- whoever publishes it again must find them.
DELETE FROM seen WHERE created_at > :after AND created_at <= :end
    AND NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.event_id = seen.event_id);

-- name: retention.idempotency
DELETE FROM idempotency WHERE (scope, key) IN (
    SELECT scope, key FROM idempotency WHERE created_at < :before LIMIT :limit);

-- name: retention.mail
DELETE FROM mail WHERE id IN (
    SELECT id FROM mail
    WHERE state IN ('sent', 'failed') AND created_at < :before LIMIT :limit);

-- name: retention.group_messages
-- Of groups that no process has known for long.
DELETE FROM message WHERE (outbox_id, "group") IN (
    SELECT m.outbox_id, m."group" FROM consumer_group AS g
    CROSS JOIN message AS m ON m."group" = g."group"
    WHERE g.refreshed_at < :before LIMIT :limit);

-- name: retention.group
DELETE FROM consumer_group WHERE refreshed_at < :before
    AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m."group" = consumer_group."group");
