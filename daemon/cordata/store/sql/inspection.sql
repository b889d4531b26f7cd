-- Queries of the CLI, to list and correct events and messages. Lists go from the newest to the
-- oldest, page by page; none of them reads a payload.

-- name: inspection.span
-- The lowest and the highest position, for the progress of a walk.
SELECT (SELECT min(position) FROM event) AS lowest, (SELECT max(position) FROM event) AS highest;

-- name: inspection.position
SELECT position FROM event WHERE id = :event_id;

-- name: inspection.below
-- The next events to examine, from `after` down: their lowest position, and when the latest of them
-- was published. Bounded by :limit, so the read is short however long the table is.
SELECT min(position) AS position, max(created_at) AS latest FROM (
    SELECT position, created_at FROM event WHERE position < :after
    ORDER BY position DESC LIMIT :limit) AS page;

-- name: inspection.above
-- As inspection.below, from `after` up.
SELECT max(position) AS position, min(created_at) AS earliest FROM (
    SELECT position, created_at FROM event WHERE position > :after
    ORDER BY position LIMIT :limit) AS page;

-- name: inspection.events
-- The events from `floor` on and before `after`, with the states of `OutboxEvent`.
SELECT * FROM (
    SELECT e.position, e.id AS event_id, e.type, e.priority, e.created_at,
           CASE
               WHEN EXISTS (SELECT 1 FROM message AS m
                            WHERE m.event_id = e.id AND m.state <> 'dead') THEN 'pending'
               WHEN EXISTS (
                   SELECT 1 FROM consumer_group AS g
                   WHERE g.type = e.type AND g.broker = 'redis' AND g.since < e.position
                       AND NOT EXISTS (SELECT 1 FROM handled AS h
                                       WHERE h.event_id = e.id AND h."group" = g."group")
                       AND NOT EXISTS (SELECT 1 FROM message AS m
                                       WHERE m.event_id = e.id AND m."group" = g."group")
                   ) THEN 'relayed'
               WHEN EXISTS (SELECT 1 FROM message AS m WHERE m.event_id = e.id) THEN 'dead'
               ELSE 'done'
           END AS state,
           (SELECT min(m.next_at) FROM message AS m
            WHERE m.event_id = e.id AND m.next_at > :now_us
                AND m.state IN ('ready', 'scheduled')) AS due_at,
           (SELECT max(h.handled_at) FROM handled AS h WHERE h.event_id = e.id) AS handled_at
    FROM event AS e
    WHERE e.position < :after AND e.position >= :floor
        AND (CAST(:type AS text) IS NULL OR e.type = :type)
        AND e.created_at >= :since AND e.created_at < :before
        AND (CAST(:group AS text) IS NULL
             OR EXISTS (SELECT 1 FROM message AS m
                        WHERE m.event_id = e.id AND m."group" = :group)
             OR EXISTS (SELECT 1 FROM handled AS h
                        WHERE h.event_id = e.id AND h."group" = :group)
             OR EXISTS (SELECT 1 FROM consumer_group AS g
                        WHERE g."group" = :group AND g.broker = 'redis' AND g.type = e.type
                            AND g.since < e.position))) AS found
WHERE CAST(:state AS text) IS NULL OR state = :state
ORDER BY position DESC LIMIT :limit;

-- name: inspection.open
-- Positions of the events that some group has not handled yet, if they are few.
SELECT position FROM message WHERE state <> 'dead' LIMIT :limit;

-- name: inspection.whole
SELECT key, payload, headers FROM event WHERE id = :event_id;

-- name: inspection.groups
-- The state of events in each group that got them, with times. In a group that gets an event through
-- Redis it has the state of the relay's message while there is one.
SELECT m.event_id, m."group", m.state, m.attempts, m.next_at, m.dead_at, m.history,
       NULL AS handled_at
FROM message AS m WHERE m.event_id IN :event_ids[text] AND m."group" <> 'redis'
UNION ALL
SELECT h.event_id, h."group", 'handled', h.attempts, NULL, NULL, NULL, h.handled_at
FROM handled AS h
WHERE h.event_id IN :event_ids[text] AND NOT EXISTS (
    SELECT 1 FROM message AS m WHERE m.event_id = h.event_id AND m."group" = h."group")
UNION ALL
SELECT e.id, g."group",
       CASE r.state WHEN 'scheduled' THEN 'scheduled' WHEN 'ready' THEN 'ready' ELSE 'relayed' END, 0,
       r.next_at, NULL, NULL, NULL
FROM event AS e CROSS JOIN consumer_group AS g
LEFT JOIN message AS r ON r.event_id = e.id AND r."group" = 'redis'
WHERE e.id IN :event_ids[text] AND g.type = e.type AND g.broker = 'redis' AND g.since < e.position
    AND NOT EXISTS (SELECT 1 FROM handled AS h WHERE h.event_id = e.id AND h."group" = g."group")
    AND NOT EXISTS (SELECT 1 FROM message AS m WHERE m.event_id = e.id AND m."group" = g."group")
ORDER BY 1, 2;

-- name: inspection.make_due
-- Messages that wait, of all groups or of :group.
UPDATE message SET state = 'ready', next_at = :now_us
WHERE event_id IN :event_ids[text] AND state IN ('ready', 'scheduled') AND next_at > :now_us
    AND (CAST(:group AS text) IS NULL OR "group" = :group);

-- name: inspection.wanted
-- What all groups of these events, or :group, already have of them: a mark, a message, or a dead letter.
SELECT count(CASE WHEN m.state IS NULL THEN h.event_id END) AS handled,
       count(CASE WHEN m.state <> 'dead' THEN 1 END) AS waiting,
       count(CASE WHEN m.state = 'dead' THEN 1 END) AS dead
FROM event AS e CROSS JOIN consumer_group AS g
LEFT JOIN message AS m ON m.event_id = e.id AND m."group" = g."group"
LEFT JOIN handled AS h ON h.event_id = e.id AND h."group" = g."group"
WHERE e.id IN :event_ids[text] AND g.type = e.type
    AND (CAST(:group AS text) IS NULL OR g."group" = :group);

-- name: inspection.forget
-- Deletes marks, so that the group handles these events again; not where it has a message of the event.
DELETE FROM handled
WHERE "group" = :group AND event_id IN :event_ids[text] AND NOT EXISTS (
    SELECT 1 FROM message AS m
    WHERE m.event_id = handled.event_id AND m."group" = handled."group");

-- name: inspection.replay
-- Adds a message for each group (or for :group) that has neither handled the event nor has a message
-- of it.
INSERT INTO message (event_id, "group", position, key, priority, state, next_at)
SELECT e.id, g."group", e.position, CASE WHEN g.keyed THEN e.key END, e.priority,
       CASE WHEN e.due_at > :now_us THEN 'scheduled' ELSE 'ready' END,
       CASE WHEN e.due_at > :now_us THEN e.due_at ELSE :now_us END
FROM event AS e CROSS JOIN consumer_group AS g
WHERE e.id IN :event_ids[text] AND g.type = e.type
    AND (CAST(:group AS text) IS NULL OR g."group" = :group)
    AND NOT EXISTS (
        SELECT 1 FROM handled AS h WHERE h.event_id = e.id AND h."group" = g."group")
ON CONFLICT DO NOTHING;

-- name: inspection.letters
SELECT m.position, m."group", m.attempts, m.dead_at, m.history, m.event_id, e.type, e.created_at
FROM message AS m CROSS JOIN event AS e
WHERE e.id = m.event_id AND m.state = 'dead'
    AND (m.dead_at, m.position, m."group") < (:dead_at, :position, :after_group)
    AND (CAST(:group AS text) IS NULL OR m."group" = :group)
    AND (CAST(:type AS text) IS NULL OR e.type = :type)
    AND m.dead_at >= :since AND m.dead_at < :before
ORDER BY m.dead_at DESC, m.position DESC, m."group" DESC LIMIT :limit;

-- name: inspection.first_death
-- The time of the oldest dead letter, for the progress of a walk.
SELECT min(dead_at) AS dead_at FROM message WHERE state = 'dead';

-- name: inspection.letters_of
-- All dead letters of one event.
SELECT m.position, m."group", m.attempts, m.dead_at, m.history, m.event_id, e.type, e.created_at,
       e.key, e.priority, e.payload, e.headers
FROM message AS m CROSS JOIN event AS e
WHERE m.event_id = :event_id AND e.id = m.event_id AND m.state = 'dead'
    AND (CAST(:group AS text) IS NULL OR m."group" = :group)
ORDER BY m."group";

-- name: inspection.give_back
-- Only dead letters that the caller has read: not one that failed again since.
UPDATE message SET state = 'ready', attempts = 0, next_at = :now_us, dead_at = NULL
WHERE event_id IN :event_ids[text] AND "group" = :group AND state = 'dead'
    AND dead_at <= :not_after;

-- name: inspection.mark_dropped
-- The mark that prevents another delivery to the group.
INSERT INTO handled (event_id, "group", attempts, handled_at)
SELECT event_id, "group", attempts, :now_us FROM message
WHERE event_id IN :event_ids[text] AND "group" = :group AND state = 'dead'
    AND dead_at <= :not_after
ON CONFLICT DO NOTHING;

-- name: inspection.drop
DELETE FROM message
WHERE event_id IN :event_ids[text] AND "group" = :group AND state = 'dead'
    AND dead_at <= :not_after;
