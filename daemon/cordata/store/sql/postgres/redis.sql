-- The broker on Redis: statements that differ between the dialects.

-- name: redis.keep
-- Adds messages of Redis to the store, except those that are handled and not `marked`. `messages`: JSON
-- list of [event id, group, state, attempts, next_at, history, dead_at, marked, owner, claim], with ''
-- and 0 for none.
INSERT INTO message (event_id, "group", position, priority, state, attempts, next_at, history,
                     dead_at, owner, claim)
SELECT e.id, m ->> 1, e.position, e.priority, m ->> 2, (m ->> 3)::integer, (m ->> 4)::bigint,
       nullif(m ->> 5, ''), nullif((m ->> 6)::bigint, 0), nullif(m ->> 8, ''),
       nullif((m ->> 9)::bigint, 0)
FROM json_array_elements(:messages::json) AS m
CROSS JOIN LATERAL (SELECT id, position, priority FROM event
                    WHERE id = m ->> 0 LIMIT 1) AS e
WHERE m ->> 7 = '1' OR (SELECT 1 FROM handled AS h
                        WHERE h.event_id = m ->> 0 AND h."group" = m ->> 1 LIMIT 1) IS NULL
ON CONFLICT DO NOTHING;
