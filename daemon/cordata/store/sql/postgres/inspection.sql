-- What an operator looks at and puts right. Lists go from the newest to the oldest, page by page;
-- none of them reads a payload.

-- name: inspection.span
-- The lowest and the highest id: how far a walk is.
SELECT (SELECT min(id) FROM outbox) AS lowest, (SELECT max(id) FROM outbox) AS highest;

-- name: inspection.floor
-- The lowest id of the next entries to look through, and the latest moment at which one of them was
-- written: however long the table is, a read is short.
SELECT min(id) AS id, max(created_at) AS latest FROM (
    SELECT id, created_at FROM outbox WHERE id < :after ORDER BY id DESC LIMIT :limit) AS page;

-- name: inspection.ceiling
-- As inspection.floor, for a walk from the oldest to the newest.
SELECT max(id) AS id, min(created_at) AS earliest FROM (
    SELECT id, created_at FROM outbox WHERE id > :after ORDER BY id LIMIT :limit) AS page;

-- name: inspection.entry_id
SELECT id FROM outbox WHERE event_id = :event_id;

-- name: inspection.entries
SELECT o.id, o.event_id, o.type, o.lane, o.priority, o.state,
       CASE WHEN o.state IN ('pending', 'failed') THEN o.next_at END AS due_at,
       o.created_at, o.published_at
FROM outbox AS o
WHERE o.id < :after AND o.id >= :floor
    AND (:state::text IS NULL OR o.state = :state::text)
    AND (:type::text IS NULL OR o.type = :type::text)
    AND (:lane::text IS NULL OR o.lane = :lane::text)
    AND (:error::text IS NULL
         OR split_part(o.last_error, ':', 1) = :error::text)
    AND o.created_at >= :since AND o.created_at < :before
    AND (:group::text IS NULL
         OR EXISTS (SELECT 1 FROM message AS m
                    WHERE m.outbox_id = o.id AND m."group" = :group::text)
         OR EXISTS (SELECT 1 FROM seen AS s
                    WHERE s.event_id = o.event_id AND s."group" = :group::text))
ORDER BY o.id DESC LIMIT :limit;

-- name: inspection.waiting
-- As inspection.entries, by the index of what waits: no walk through what is published.
WITH o AS MATERIALIZED (
    SELECT id, event_id, type, lane, priority, state, next_at AS due_at, last_error,
           created_at, published_at
    FROM outbox WHERE state IN ('pending', 'failed')
)
SELECT o.id, o.event_id, o.type, o.lane, o.priority, o.state, o.due_at,
       o.created_at, o.published_at
FROM o
WHERE o.id < :after
    AND (:state::text IS NULL OR o.state = :state::text)
    AND (:type::text IS NULL OR o.type = :type::text)
    AND (:lane::text IS NULL OR o.lane = :lane::text)
    AND (:error::text IS NULL
         OR split_part(o.last_error, ':', 1) = :error::text)
    AND o.created_at >= :since AND o.created_at < :before
ORDER BY o.id DESC LIMIT :limit;

-- name: inspection.entry
SELECT o.id, o.event_id, o.type, o.key, o.lane, o.priority, o.state, o.attempts, o.last_error,
       CASE WHEN o.state IN ('pending', 'failed') THEN o.next_at END AS due_at,
       o.created_at, o.published_at, o.payload, o.headers
FROM outbox AS o WHERE o.event_id = :event_id;

-- name: inspection.groups
-- What became of an entry in each group that got it.
SELECT m."group", m.state, m.attempts
FROM outbox AS o JOIN message AS m ON m.outbox_id = o.id WHERE o.event_id = :event_id
UNION ALL
SELECT s."group", 'handled', NULL FROM seen AS s
WHERE s.event_id = :event_id AND NOT EXISTS (
    SELECT 1 FROM outbox AS o JOIN message AS m ON m.outbox_id = o.id
    WHERE o.event_id = s.event_id AND m."group" = s."group")
UNION ALL
-- With Redis as the broker: what has no mark, and passed through a stream. One of its groups has
-- handled it once its position there is behind it.
SELECT r."group", CASE WHEN o.position <= r.position THEN 'handled' ELSE 'in stream' END, NULL
FROM outbox AS o
JOIN redis_group AS r ON r.type = o.type AND r.level =
    CASE WHEN o.lane = 'backfill' THEN 'backfill' WHEN o.priority > 0 THEN 'urgent'
         WHEN o.priority < 0 THEN 'low' ELSE 'normal' END
JOIN consumer_group AS g
    ON g."group" = r."group" AND g.keyed = 0 AND g.registered_at <= o.published_at
WHERE o.event_id = :event_id AND o.position IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM message AS m WHERE m.outbox_id = o.id AND m."group" = r."group")
    AND NOT EXISTS (
        SELECT 1 FROM seen AS s WHERE s.event_id = o.event_id AND s."group" = r."group")
ORDER BY 1;

-- name: inspection.left_in_redis
-- Of the last entries that were handed to Redis: those that some group has neither handled nor in
-- hand here.
SELECT count(*) AS entries
FROM (SELECT id, event_id, type, lane, priority, position, state, published_at FROM outbox
      WHERE position IS NOT NULL ORDER BY position DESC LIMIT :limit) AS o
WHERE o.state = 'published' AND EXISTS (
    SELECT 1 FROM redis_group AS r
    JOIN consumer_group AS g
        ON g."group" = r."group" AND g.keyed = 0 AND g.registered_at <= o.published_at
    WHERE r.type = o.type AND r.position < o.position AND r.level =
            CASE WHEN o.lane = 'backfill' THEN 'backfill' WHEN o.priority > 0 THEN 'urgent'
                 WHEN o.priority < 0 THEN 'low' ELSE 'normal' END
        AND NOT EXISTS (
            SELECT 1 FROM message AS m WHERE m.outbox_id = o.id AND m."group" = r."group")
        AND NOT EXISTS (
            SELECT 1 FROM seen AS s WHERE s.event_id = o.event_id AND s."group" = r."group"));

-- name: inspection.make_due
-- One that the relay gave up begins anew.
UPDATE outbox SET next_at = least(next_at, :now_us),
    state = CASE state WHEN 'dead' THEN 'pending' ELSE state END,
    attempts = CASE state WHEN 'dead' THEN 0 ELSE attempts END
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND state IN ('pending', 'failed', 'dead');

-- name: inspection.group_type
-- The type that a consumer group handles.
SELECT type FROM consumer_group WHERE "group" = :group;

-- name: inspection.known_groups
SELECT "group" FROM consumer_group ORDER BY "group";

-- name: inspection.copies
-- How many entries are published still, and how many messages all their groups (or the one that is
-- named) would get.
SELECT count(DISTINCT o.id) AS entries, count(g."group") AS messages
FROM outbox AS o
LEFT JOIN consumer_group AS g
    ON g.type = o.type AND (:group::text IS NULL OR g."group" = :group::text)
WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND o.state = 'published';

-- name: inspection.forget
-- The group may handle these events anew. Not one that it has in hand: its mark may be just written.
DELETE FROM seen
WHERE "group" = :group AND event_id IN (
    SELECT o.event_id FROM outbox AS o
    WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
        AND o.state = 'published' AND NOT EXISTS (
            SELECT 1 FROM message AS m WHERE m.outbox_id = o.id AND m."group" = :group));

-- name: inspection.publish_again
-- newest
-- One message for each group (or the one that is named) that has neither handled the event nor has
-- it in hand. Without `again` a group has handled, too, what its mark in a Redis stream is past. An
-- entry that is being deleted is waited for: then it is gone.
INSERT INTO message (outbox_id, "group", key, state, lane, priority, next_at)
SELECT o.id, g."group", CASE WHEN g.keyed = 1 THEN o.key END,
       CASE WHEN g.keyed = 1 AND o.key IS NOT NULL THEN 'waiting' ELSE 'ready' END,
       o.lane, o.priority, :next_at
FROM outbox AS o JOIN consumer_group AS g ON g.type = o.type
WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND o.state = 'published' AND (:group::text IS NULL OR g."group" = :group::text)
    AND NOT EXISTS (
        SELECT 1 FROM seen AS s WHERE s.event_id = o.event_id AND s."group" = g."group")
    AND (:again::integer = 1 OR g.keyed = 1 OR g.registered_at > o.published_at OR NOT EXISTS (
        SELECT 1 FROM redis_group AS r
        WHERE r.type = o.type AND r."group" = g."group" AND r.position >= o.position AND r.level =
            CASE WHEN o.lane = 'backfill' THEN 'backfill' WHEN o.priority > 0 THEN 'urgent'
                 WHEN o.priority < 0 THEN 'low' ELSE 'normal' END))
ORDER BY o.id FOR KEY SHARE OF o
ON CONFLICT DO NOTHING;

-- name: inspection.old
-- One page of the old end of the outbox; `old` is what may go: published, in no group's hands,
-- and taken by all from its stream.
SELECT id, created_at,
       coalesce(state = 'published' AND published_at < :before, false)
           AND created_at >= :since
           AND (:type::text IS NULL OR type = :type::text)
           AND (:lane::text IS NULL OR lane = :lane::text)
           AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.outbox_id = page.id)
           AND NOT EXISTS (SELECT 1 FROM redis_group AS g
                           WHERE g.type = page.type AND g.position < page.position AND g.level =
               CASE WHEN page.lane = 'backfill' THEN 'backfill' WHEN page.priority > 0 THEN 'urgent'
                    WHEN page.priority < 0 THEN 'low' ELSE 'normal' END) AS old
FROM (SELECT id, created_at, state, type, lane, published_at, priority, position FROM outbox
      WHERE id > :after ORDER BY id LIMIT :limit) AS page;

-- name: inspection.letters
-- `error` is the kind of the last one: what stands before its colon.
SELECT outbox_id, "group", attempts, dead_at, event_id, type, lane, created_at, error FROM (
    SELECT m.outbox_id, m."group", m.attempts, m.dead_at,
           o.event_id, o.type, o.lane, o.created_at,
           substring(m.history FROM '"error": "([^":\\]*)([^"\\]|\\.)*"\}\]$') AS error
    FROM message AS m JOIN outbox AS o ON o.id = m.outbox_id
    WHERE m.state = 'dead'
        AND (m.dead_at, m.outbox_id, m."group") < (:dead_at, :outbox_id, :after_group)
        AND (:group::text IS NULL OR m."group" = :group::text)
        AND (:type::text IS NULL OR o.type = :type::text)
        AND (:lane::text IS NULL OR o.lane = :lane::text)
        AND m.dead_at >= :since AND m.dead_at < :before) AS letter
WHERE :error::text IS NULL OR error = :error::text
ORDER BY dead_at DESC, outbox_id DESC, "group" DESC LIMIT :limit;

-- name: inspection.first_death
-- The earliest one: how far a walk through the letters is.
SELECT min(dead_at) AS dead_at FROM message WHERE state = 'dead';

-- name: inspection.letters_of
-- All of one event, whole.
SELECT m.outbox_id, m."group", m.attempts, m.dead_at, m.history, o.event_id, o.type, o.key,
       o.lane, o.priority, o.created_at, o.payload, o.headers
FROM outbox AS o JOIN message AS m ON m.outbox_id = o.id
WHERE o.event_id = :event_id AND m.state = 'dead'
    AND (:group::text IS NULL OR m."group" = :group::text)
ORDER BY m."group";

-- name: inspection.replay
-- Only the very death that was looked at: what another operator replayed meanwhile is his.
UPDATE message SET
    state = CASE WHEN key IS NULL THEN 'ready' ELSE 'waiting' END,
    attempts = 0, next_at = :now_us, dead_at = NULL
WHERE (outbox_id, "group") IN (
        SELECT (letter ->> 0)::bigint, letter ->> 1 FROM json_array_elements(:letters::json) AS letter)
    AND state = 'dead' AND dead_at <= :not_after;

-- name: inspection.drop
DELETE FROM message
WHERE (outbox_id, "group") IN (
        SELECT (letter ->> 0)::bigint, letter ->> 1 FROM json_array_elements(:letters::json) AS letter)
    AND state = 'dead' AND dead_at <= :not_after;
