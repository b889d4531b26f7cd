-- What the store knows of one request, for `cordata trace`. None of them reads a payload or a mail's
-- text. Headers are searched as text, `!` escapes; the caller compares what was found.

-- name: trace.event
SELECT position, id, type, headers, created_at FROM event WHERE id = :event_id;

-- name: trace.events
SELECT position, id, type, headers, created_at FROM event
WHERE position < :after AND position >= :floor AND headers LIKE :text ESCAPE '!'
ORDER BY position;

-- name: trace.messages
-- The state of events in each group that got them, as inspection.groups, with times.
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

-- name: trace.stored_below
-- As inspection.below, of the event store.
SELECT min(position) AS position, max(created_at) AS latest FROM (
    SELECT position, created_at FROM stored_event WHERE position < :after
    ORDER BY position DESC LIMIT :limit) AS page;

-- name: trace.stored
SELECT position, category, type, headers, created_at FROM stored_event
WHERE position < :after AND position >= :floor AND headers LIKE :text ESCAPE '!'
ORDER BY position;

-- name: trace.mails
SELECT id, state, attempts, created_at, next_at, sent_at FROM mail
WHERE request_id IN :request_ids[text] AND created_at >= :since ORDER BY id;
