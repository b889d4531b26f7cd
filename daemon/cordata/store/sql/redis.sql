-- The rows of the Redis broker in the store. `entry` is the id of a stream's entry as a number.

-- name: redis.server
SELECT run_id, epoch, recheck_to FROM redis_server;

-- name: redis.set_server
INSERT INTO redis_server (id, run_id, epoch, recheck_to) VALUES (1, :run_id, :epoch, :recheck_to)
ON CONFLICT (id) DO UPDATE SET
    run_id = excluded.run_id, epoch = excluded.epoch, recheck_to = excluded.recheck_to;

-- name: redis.lock_server
-- newest
-- Locks the row until the end of the transaction.
SELECT run_id, epoch FROM redis_server{| FOR SHARE};

-- name: redis.add_sent
-- `entries`: JSON list of [type, entry, event id].
INSERT INTO redis_sent (type, entry, event_id)
SELECT e.value ->> 0, CAST(e.value ->> 1 AS BIGINT), e.value ->> 2
FROM {json_each(:entries) AS e|json_array_elements(:entries::json) AS e (value)} WHERE true
ON CONFLICT (type, entry) DO UPDATE SET event_id = excluded.event_id;

-- name: redis.keep
-- Adds messages of Redis to the store, except those that are handled and not `marked`. `messages`: JSON
-- list of [event id, group, state, attempts, next_at, history, dead_at, marked, owner, claim], with ''
-- and 0 for none.
INSERT INTO message (event_id, "group", position, priority, state, attempts, next_at, history,
                     dead_at, owner, claim)
SELECT e.id, m.value ->> 1, e.position, e.priority, m.value ->> 2, CAST(m.value ->> 3 AS INTEGER),
       CAST(m.value ->> 4 AS BIGINT), nullif(m.value ->> 5, ''),
       nullif(CAST(m.value ->> 6 AS BIGINT), 0), nullif(m.value ->> 8, ''),
       nullif(CAST(m.value ->> 9 AS BIGINT), 0)
FROM {json_each(:messages) AS m|json_array_elements(:messages::json) AS m (value)}
CROSS JOIN {event|LATERAL (SELECT id, position, priority FROM event WHERE id = m.value ->> 0 LIMIT 1)} AS e
WHERE e.id = m.value ->> 0 AND (CAST(m.value ->> 7 AS INTEGER) = 1 OR (
    SELECT 1 FROM handled AS h
    WHERE h.event_id = m.value ->> 0 AND h."group" = m.value ->> 1 LIMIT 1) IS NULL)
ON CONFLICT DO NOTHING;

-- name: redis.mark
-- `events`: JSON list of [event id, group].
INSERT INTO handled (event_id, "group", attempts, handled_at)
SELECT e.value ->> 0, e.value ->> 1, 1, :now_us
FROM {json_each(:events) AS e|json_array_elements(:events::json) AS e (value)} WHERE true
ON CONFLICT DO NOTHING;

-- name: redis.groups
-- The groups that read streams.
SELECT "group", type FROM consumer_group WHERE broker = 'redis';

-- name: redis.last
-- The last entry of each stream that the store knows of.
WITH RECURSIVE stream (type) AS (
    SELECT min(type) FROM redis_sent
    UNION ALL
    SELECT (SELECT min(s.type) FROM redis_sent AS s WHERE s.type > stream.type)
    FROM stream WHERE stream.type IS NOT NULL)
SELECT type, (SELECT max(s.entry) FROM redis_sent AS s WHERE s.type = stream.type) AS entry
FROM stream WHERE type IS NOT NULL;

-- name: redis.relayed
-- Deletes the relay's messages of events that are in their streams.
DELETE FROM message WHERE event_id IN :ids[text] AND "group" = 'redis' AND claim = :claim;

-- name: redis.page
-- Entries that some group may not have handled, in the order of their streams.
SELECT type, entry, event_id FROM redis_sent WHERE (type, entry) > (:type, :entry)
ORDER BY type, entry LIMIT :limit;

-- name: redis.finished
-- Entries of a stream that every group has acknowledged.
SELECT entry, event_id FROM redis_sent WHERE type = :type AND entry <= :entry
ORDER BY entry LIMIT :limit;

-- name: redis.give
-- Adds messages of these events for each group without the order of keys that has neither handled the
-- event nor has a message of it. (Scalar subqueries: looked up by index, whatever the statistics say.)
INSERT INTO message (event_id, "group", position, priority, state, next_at)
SELECT e.id, g."group", e.position, e.priority,
       CASE WHEN e.due_at > :now_us THEN 'scheduled' ELSE 'ready' END, e.due_at
FROM event AS e JOIN consumer_group AS g ON g.type = e.type
WHERE e.id IN :ids[text] AND NOT g.keyed AND e.position > g.since
    AND (SELECT 1 FROM handled AS h
         WHERE h.event_id = e.id AND h."group" = g."group" LIMIT 1) IS NULL
ON CONFLICT DO NOTHING;

-- name: redis.give_group
-- As redis.give, for one group and the events of its former type.
INSERT INTO message (event_id, "group", position, priority, state, next_at)
SELECT e.id, g."group", e.position, e.priority, 'ready', e.due_at
FROM redis_sent AS s JOIN event AS e ON e.id = s.event_id
JOIN consumer_group AS g ON g."group" = :group
WHERE s.type = :type AND e.position > g.since
    AND (SELECT 1 FROM handled AS h
         WHERE h.event_id = e.id AND h."group" = g."group" LIMIT 1) IS NULL
ON CONFLICT DO NOTHING;

-- name: redis.forget
DELETE FROM redis_sent WHERE type = :type AND entry IN :entries[bigint];

-- name: redis.not_wanted
-- Which of these events a group has handled already, has a message of, or is not to get: it was
-- registered after them, and the primary made it in Redis at the start of its stream.
SELECT event_id FROM handled WHERE event_id IN :ids[text] AND "group" = :group
UNION SELECT event_id FROM message WHERE event_id IN :ids[text] AND "group" = :group
UNION SELECT e.id FROM event AS e JOIN consumer_group AS g ON e.position <= g.since
WHERE e.id IN :ids[text] AND g."group" = :group;

-- name: redis.waiting
-- Messages that wait for a relay.
SELECT event_id FROM message WHERE "group" = 'redis' ORDER BY event_id LIMIT :limit;

-- name: redis.drop_waiting
DELETE FROM message WHERE event_id IN :ids[text] AND "group" = 'redis';

-- name: redis.dissolve
-- Switches all groups to the store's own broker.
UPDATE consumer_group SET broker = 'store' WHERE broker = 'redis';

-- name: redis.remove_relay
DELETE FROM consumer_group WHERE "group" = 'redis';

-- name: redis.remove_server
DELETE FROM redis_server;
