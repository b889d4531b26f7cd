-- Queries of the test harness.

-- name: testing.outbox
SELECT e.id, e.type, e.key, e.payload, e.headers, e.priority, e.due_at, e.created_at,
       CASE
           WHEN EXISTS (SELECT 1 FROM message AS m
                        WHERE m.event_id = e.id AND m.state <> 'dead') THEN 'pending'
           WHEN EXISTS (SELECT 1 FROM message AS m WHERE m.event_id = e.id) THEN 'dead'
           ELSE 'done'
       END AS state
FROM event AS e WHERE CAST(:type AS text) IS NULL OR e.type = :type ORDER BY e.position;

-- name: testing.mails
SELECT message_id, "to", subject, text, html, inline, created_at FROM mail ORDER BY id;

-- name: testing.next_at
-- The next due time, after now, of the waiting messages of these groups.
SELECT min(next_at) AS next_at FROM message
WHERE "group" IN :groups[text] AND state IN ('ready', 'scheduled') AND next_at > :now_us;
