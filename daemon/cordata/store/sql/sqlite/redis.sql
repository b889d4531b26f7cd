-- The broker on Redis: what of it is in the store. Positions are entry ids as numbers.

-- name: redis.server
SELECT run_id, epoch FROM redis_server;

-- name: redis.hold_server
-- On PostgreSQL nobody changes it before the end of the transaction; here there is one writer.
SELECT run_id, epoch FROM redis_server;

-- name: redis.set_server
INSERT INTO redis_server (id, run_id, epoch, recovered_at) VALUES (1, :run_id, :epoch, :now_us)
ON CONFLICT (id) DO UPDATE SET
    run_id = excluded.run_id, epoch = excluded.epoch, recovered_at = excluded.recovered_at;

-- name: redis.distrust
-- Somebody misses something: the primary is to look through it.
UPDATE redis_server SET run_id = '' WHERE run_id <> '';

-- name: redis.streams
SELECT type, level, position, floor FROM redis_stream;

-- name: redis.marks
SELECT type, level, "group", position FROM redis_group;

-- name: redis.groups
-- Keyed groups get their events in the store.
SELECT "group", type, keyed FROM consumer_group;

-- name: redis.add_stream
INSERT INTO redis_stream (type, level, position) VALUES (:type, :level, :position)
ON CONFLICT DO NOTHING;

-- name: redis.add_mark
INSERT INTO redis_group (type, level, "group", position)
VALUES (:type, :level, :group, :position)
ON CONFLICT DO NOTHING;

-- name: redis.save_stream
UPDATE redis_stream SET position = max(position, :position), floor = max(floor, :floor)
WHERE type = :type AND level = :level;

-- name: redis.save_mark
UPDATE redis_group SET position = max(position, :position)
WHERE type = :type AND level = :level AND "group" = :group;

-- name: redis.drop_mark
DELETE FROM redis_group WHERE type = :type AND level = :level AND "group" = :group;

-- name: redis.fan_out
-- As stream.fan_out, for the groups that want key order.
INSERT INTO message (outbox_id, "group", key, state, lane, priority, next_at)
SELECT o.id, g."group", o.key, iif(o.key IS NOT NULL, 'waiting', 'ready'), o.lane, o.priority,
       :now_us
FROM json_each(:ids) AS i
CROSS JOIN outbox AS o ON o.id = i.value
JOIN consumer_group AS g ON g.type = o.type
WHERE g.keyed
ON CONFLICT DO NOTHING;

-- name: redis.mark_published
-- `entries`: JSON list of [id, position]. Marked by two, it keeps either's position.
UPDATE outbox SET state = 'published', published_at = :now_us, owner = NULL, claimed_until = NULL,
    position = sent.position
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS position
      FROM json_each(:entries)) AS sent
WHERE outbox.id = sent.id AND outbox.state IN ('pending', 'failed', 'processing');

-- name: redis.doubt
-- Redis may have these or not, for the answer was lost.
UPDATE outbox SET position = coalesce(position, 0)
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'processing' AND +owner = :owner;

-- name: redis.missing
-- Those of the ids that the outbox has no more.
SELECT value AS id FROM json_each(:ids)
WHERE NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.id = value);

-- name: redis.restore
-- An entry that retention or an operator deleted though a group still had it in hand.
INSERT INTO outbox (id, event_id, type, key, lane, priority, payload, headers, state, next_at,
                    created_at, published_at)
VALUES (:id, :event_id, :type, :key, :lane, :priority, :payload, :headers, 'published', :created_at,
        :created_at, :now_us)
ON CONFLICT DO NOTHING;

-- name: redis.keep
-- Messages that go on in the store, but for those that are handled: `messages` is a JSON list of
-- [outbox id, event id, group, state, attempts, next_at, history, dead_at, marked], with '' and 0 for
-- none. What is marked stays though it is handled.
INSERT INTO message (outbox_id, "group", state, lane, priority, attempts, next_at, history, dead_at)
SELECT o.id, json_extract(m.value, '$[2]'), json_extract(m.value, '$[3]'), o.lane, o.priority,
       json_extract(m.value, '$[4]'), json_extract(m.value, '$[5]'),
       nullif(json_extract(m.value, '$[6]'), ''), nullif(json_extract(m.value, '$[7]'), 0)
FROM json_each(:messages) AS m CROSS JOIN outbox AS o ON o.id = json_extract(m.value, '$[0]')
WHERE json_extract(m.value, '$[8]') = 1 OR NOT EXISTS (
    SELECT 1 FROM seen AS s WHERE s.event_id = json_extract(m.value, '$[1]')
        AND s."group" = json_extract(m.value, '$[2]'))
ON CONFLICT DO NOTHING;

-- name: redis.known
-- Of the entries (JSON list of [outbox id, event id]) those that a group has handled already, or
-- has in the store.
SELECT json_extract(e.value, '$[0]') AS id FROM json_each(:entries) AS e
WHERE EXISTS (SELECT 1 FROM seen AS s
              WHERE s.event_id = json_extract(e.value, '$[1]') AND s."group" = :group)
    OR EXISTS (SELECT 1 FROM message AS m
               WHERE m.outbox_id = json_extract(e.value, '$[0]') AND m."group" = :group);

-- name: redis.page
-- Published entries in the order of their positions.
SELECT id, position FROM outbox INDEXED BY outbox_position
WHERE position IS NOT NULL AND (position, id) > (:position, :id)
ORDER BY position, id LIMIT :limit;

-- name: redis.undone
-- Which groups have not done which of the entries, as far as the store knows.
SELECT o.id, o.event_id, o.type, o.position, m.level, m."group"
FROM json_each(:ids) AS i
CROSS JOIN outbox AS o ON o.id = i.value
CROSS JOIN redis_group AS m ON m.type = o.type AND m.level =
    CASE WHEN o.lane = 'backfill' THEN 'backfill' WHEN o.priority > 0 THEN 'urgent'
         WHEN o.priority < 0 THEN 'low' ELSE 'normal' END
WHERE o.state = 'published' AND o.published_at >= :since AND o.position > m.position
    AND NOT EXISTS (SELECT 1 FROM seen AS s WHERE s.event_id = o.event_id AND s."group" = m."group")
    AND NOT EXISTS (SELECT 1 FROM message AS e WHERE e.outbox_id = o.id AND e."group" = m."group");

-- name: redis.top
-- The highest position of any entry.
SELECT max(position) AS position FROM outbox INDEXED BY outbox_position WHERE position IS NOT NULL;
