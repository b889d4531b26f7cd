-- What an operator looks at and puts right. Lists go from the newest to the oldest, page by page;
-- none of them reads a payload.

-- name: inspection.floor
-- The lowest id of the next entries to look through: however long the table is, a read is short.
SELECT min(id) AS id FROM (
    SELECT id FROM outbox WHERE id < :after ORDER BY id DESC LIMIT :limit);

-- name: inspection.entry_id
SELECT id FROM outbox WHERE event_id = :event_id;

-- name: inspection.entries
SELECT id, event_id, type, lane, priority, state,
       iif(state = 'pending', next_at, NULL) AS due_at, created_at, published_at
FROM outbox
WHERE id < :after AND id >= :floor
    AND (:state IS NULL OR state = :state)
    AND (:type IS NULL OR type = :type)
    AND created_at < :before
ORDER BY id DESC LIMIT :limit;

-- name: inspection.pending
-- As inspection.entries, by the index of what waits: no walk through what is published.
SELECT id, event_id, type, lane, priority, state,
       iif(state = 'pending', next_at, NULL) AS due_at, created_at, published_at
FROM outbox INDEXED BY outbox_pending
WHERE state IN ('pending', 'failed') AND state = 'pending' AND id < :after
    AND (:type IS NULL OR type = :type)
    AND created_at < :before
ORDER BY id DESC LIMIT :limit;

-- name: inspection.entry
SELECT id, event_id, type, key, lane, priority, state,
       iif(state = 'pending', next_at, NULL) AS due_at, created_at, published_at, payload, headers
FROM outbox WHERE event_id = :event_id;

-- name: inspection.groups
-- What became of an entry in each group that got it.
SELECT m."group", m.state, m.attempts
FROM outbox AS o CROSS JOIN message AS m ON m.outbox_id = o.id WHERE o.event_id = :event_id
UNION ALL
SELECT s."group", 'handled', NULL FROM seen AS s
WHERE s.event_id = :event_id AND NOT EXISTS (
    SELECT 1 FROM outbox AS o CROSS JOIN message AS m ON m.outbox_id = o.id
    WHERE o.event_id = s.event_id AND m."group" = s."group")
ORDER BY 1;

-- name: inspection.make_due
UPDATE outbox SET next_at = min(next_at, :now_us)
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('pending', 'failed');

-- name: inspection.old
-- One page of the old end of the outbox; `old` is what may go: published, and in no group's hands.
SELECT id, created_at,
       state = 'published' AND published_at < :before AND (:type IS NULL OR type = :type)
           AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.outbox_id = page.id) AS old
FROM (SELECT id, created_at, state, type, published_at FROM outbox
      WHERE id > :after ORDER BY id LIMIT :limit) AS page;

-- name: inspection.letters
SELECT m.outbox_id, m."group", m.attempts, m.dead_at, o.event_id, o.type, o.created_at,
       iif(json_valid(m.history), json_extract(m.history, '$[#-1].error'), NULL) AS error
FROM message AS m CROSS JOIN outbox AS o ON o.id = m.outbox_id
WHERE m.state = 'dead'
    AND (m.dead_at, m.outbox_id, m."group") < (:dead_at, :outbox_id, :after_group)
    AND (:group IS NULL OR m."group" = :group)
    AND (:type IS NULL OR o.type = :type)
    AND m.dead_at < :before
ORDER BY m.dead_at DESC, m.outbox_id DESC, m."group" DESC LIMIT :limit;

-- name: inspection.letters_of
-- All of one event, whole.
SELECT m.outbox_id, m."group", m.attempts, m.dead_at, m.history, o.event_id, o.type, o.key,
       o.lane, o.priority, o.created_at, o.payload, o.headers,
       iif(json_valid(m.history), json_extract(m.history, '$[#-1].error'), NULL) AS error
FROM outbox AS o CROSS JOIN message AS m ON m.outbox_id = o.id
WHERE o.event_id = :event_id AND m.state = 'dead' AND (:group IS NULL OR m."group" = :group)
ORDER BY m."group";

-- name: inspection.replay
-- Only the very death that was looked at: what another operator replayed meanwhile is his.
UPDATE message SET state = 'ready', attempts = 0, next_at = :now_us, dead_at = NULL
WHERE (outbox_id, "group") IN (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:letters))
    AND state = 'dead' AND dead_at <= :not_after;

-- name: inspection.drop
DELETE FROM message
WHERE (outbox_id, "group") IN (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:letters))
    AND state = 'dead' AND dead_at <= :not_after;
