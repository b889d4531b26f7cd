-- The relay's view of the outbox.

-- name: outbox.levels
-- Each priority that has pending entries, most urgent first, and when its earliest is due.
-- Steps from level to level on the index, so neither backlog nor delayed entries cost anything.
WITH RECURSIVE level (priority) AS (
    SELECT max(priority) FROM outbox WHERE state = 'pending'
    UNION ALL
    SELECT (SELECT max(priority) FROM outbox
            WHERE state = 'pending' AND priority < level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT priority, (SELECT next_at FROM outbox
                  WHERE state = 'pending' AND priority = level.priority
                  ORDER BY next_at LIMIT 1) AS next_at
FROM level WHERE priority IS NOT NULL ORDER BY priority DESC;

-- name: outbox.due
-- What another relay has in hand is passed over: it will be published by that one.
SELECT id FROM outbox
WHERE state = 'pending' AND priority = :priority AND next_at <= :now_us
ORDER BY next_at, id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: outbox.mark_published
UPDATE outbox SET state = 'published', published_at = :now_us
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint)) AND state = 'pending';
