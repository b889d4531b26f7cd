-- The broker on Redis: what of it is in the store. Positions are entry ids as numbers.

-- name: redis.server
SELECT run_id, epoch FROM redis_server;

-- name: redis.hold_server
-- newest
-- Nobody changes it before the end of the transaction.
SELECT run_id, epoch FROM redis_server FOR SHARE;

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
UPDATE redis_stream SET
    position = greatest(position, :position), floor = greatest(floor, :floor)
WHERE type = :type AND level = :level;

-- name: redis.save_mark
UPDATE redis_group SET position = greatest(position, :position)
WHERE type = :type AND level = :level AND "group" = :group;

-- name: redis.drop_mark
DELETE FROM redis_group WHERE type = :type AND level = :level AND "group" = :group;

-- name: redis.fan_out
-- As stream.fan_out, for the groups that want key order.
INSERT INTO message (outbox_id, "group", key, state, lane, priority, next_at)
SELECT o.id, g."group", o.key, CASE WHEN o.key IS NOT NULL THEN 'waiting' ELSE 'ready' END,
       o.lane, o.priority, :now_us::bigint
FROM outbox AS o JOIN consumer_group AS g ON g.type = o.type
WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint)) AND g.keyed = 1
ON CONFLICT DO NOTHING;

-- name: redis.mark_published
-- `entries`: JSON list of [id, position]. Marked by two, it keeps either's position.
UPDATE outbox SET state = 'published', published_at = :now_us, owner = NULL, claimed_until = NULL,
    position = sent.position
FROM (SELECT (entry ->> 0)::bigint AS id, (entry ->> 1)::bigint AS position
      FROM json_array_elements(:entries::json) AS entry) AS sent
WHERE outbox.id = sent.id AND outbox.state NOT IN ('published', 'dead');

-- name: redis.doubt
-- Redis may have these or not, for the answer was lost.
UPDATE outbox SET position = coalesce(position, 0)
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND state = 'processing' AND owner = :owner;

-- name: redis.missing
-- Those of the ids that the outbox has no more.
SELECT value::bigint AS id FROM json_array_elements_text(:ids::json) AS value
WHERE NOT EXISTS (SELECT 1 FROM outbox AS o WHERE o.id = value::bigint);

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
SELECT o.id, m ->> 2, m ->> 3, o.lane, o.priority, (m ->> 4)::integer, (m ->> 5)::bigint,
       nullif(m ->> 6, ''), nullif((m ->> 7)::bigint, 0)
FROM json_array_elements(:messages::json) AS m
CROSS JOIN LATERAL (SELECT id, lane, priority FROM outbox
                    WHERE id = (m ->> 0)::bigint LIMIT 1) AS o
WHERE m ->> 8 = '1' OR NOT coalesce((SELECT s.event_id = m ->> 1 AND s."group" = m ->> 2 FROM seen AS s
                    WHERE (s.event_id, s."group") >= (m ->> 1, m ->> 2)
                    ORDER BY s.event_id, s."group" LIMIT 1), false)
ON CONFLICT DO NOTHING;

-- name: redis.known
-- Of the entries (JSON list of [outbox id, event id]) those that a group has handled already, or
-- has in the store.
SELECT (e ->> 0)::bigint AS id FROM json_array_elements(:entries::json) AS e
WHERE coalesce((SELECT s.event_id = e ->> 1 AND s."group" = :group FROM seen AS s
                WHERE (s.event_id, s."group") >= (e ->> 1, :group)
                ORDER BY s.event_id, s."group" LIMIT 1), false)
    OR coalesce((SELECT m.outbox_id = (e ->> 0)::bigint AND m."group" = :group FROM message AS m
                 WHERE (m.outbox_id, m."group") >= ((e ->> 0)::bigint, :group)
                 ORDER BY m.outbox_id, m."group" LIMIT 1), false);

-- name: redis.page
-- Published entries in the order of their positions.
SELECT id, position FROM outbox
WHERE position IS NOT NULL AND (position, id) > (:position, :id)
ORDER BY position, id LIMIT :limit;

-- name: redis.undone
-- Which groups have not done which of the entries, as far as the store knows.
SELECT o.id, o.event_id, o.type, o.position, m.level, m."group"
FROM outbox AS o
JOIN redis_group AS m ON m.type = o.type AND m.level =
    CASE WHEN o.lane = 'backfill' THEN 'backfill' WHEN o.priority > 0 THEN 'urgent'
         WHEN o.priority < 0 THEN 'low' ELSE 'normal' END
WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND o.state = 'published' AND o.published_at >= :since AND o.position > m.position
    AND NOT coalesce((SELECT s.event_id = o.event_id AND s."group" = m."group" FROM seen AS s
                      WHERE (s.event_id, s."group") >= (o.event_id, m."group")
                      ORDER BY s.event_id, s."group" LIMIT 1), false)
    AND NOT coalesce((SELECT e.outbox_id = o.id AND e."group" = m."group" FROM message AS e
                      WHERE (e.outbox_id, e."group") >= (o.id, m."group")
                      ORDER BY e.outbox_id, e."group" LIMIT 1), false);

-- name: redis.top
-- The highest position of any entry.
SELECT max(position) AS position FROM outbox WHERE position IS NOT NULL;
