-- The broker on Redis: statements that differ between the dialects.

-- name: redis.keep
-- Adds messages of Redis to the store, except those that are handled and not `marked`. `messages`: JSON
-- list of [event id, group, state, attempts, next_at, history, dead_at, marked, owner, claim], with ''
-- and 0 for none.
INSERT INTO message (event_id, "group", position, priority, state, attempts, next_at, history,
                     dead_at, owner, claim)
SELECT e.id, json_extract(m.value, '$[1]'), e.position, e.priority, json_extract(m.value, '$[2]'),
       json_extract(m.value, '$[3]'), json_extract(m.value, '$[4]'),
       nullif(json_extract(m.value, '$[5]'), ''), nullif(json_extract(m.value, '$[6]'), 0),
       nullif(json_extract(m.value, '$[8]'), ''), nullif(json_extract(m.value, '$[9]'), 0)
FROM json_each(:messages) AS m CROSS JOIN event AS e ON e.id = json_extract(m.value, '$[0]')
WHERE json_extract(m.value, '$[7]') = 1 OR NOT EXISTS (
    SELECT 1 FROM handled AS h WHERE h.event_id = json_extract(m.value, '$[0]')
        AND h."group" = json_extract(m.value, '$[1]'))
ON CONFLICT DO NOTHING;
