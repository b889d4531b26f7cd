-- The broker on Redis: statements that differ between the dialects.

-- name: redis.lock_server
-- No lock is needed: one process writes at a time.
SELECT run_id, epoch FROM redis_server;

-- name: redis.add_sent
-- `entries`: JSON list of [type, entry, event id].
INSERT INTO redis_sent (type, entry, event_id)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(:entries) WHERE true
ON CONFLICT (type, entry) DO UPDATE SET event_id = excluded.event_id;

-- name: redis.mark
-- `events`: JSON list of [event id, group].
INSERT INTO handled (event_id, "group", attempts, handled_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), 1, :now_us
FROM json_each(:events) WHERE true
ON CONFLICT DO NOTHING;

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
