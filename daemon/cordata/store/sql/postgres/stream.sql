-- The store broker: groups, messages, claims, dead letters.
--
-- Sets of messages are looked up by their key, in whose order their rows are locked. Where a
-- condition says which states they are not in, it means those that are left: named by themselves
-- they would bring the indexes of those states into play, and a walk through all that waits.
--
-- A row of another table is the first one from its key on (>= and LIMIT 1): always looked up, never
-- found by reading a table that was small when the server last counted.
--
-- Where a group wants the order of keys, of each key one message at most is `ready`, the first one;
-- the others are `waiting`. Whatever comes or comes back enters as waiting, then stream.promote
-- makes the first one ready unless one of its key is claimed. So a claim never looks at what has to
-- wait, however much that is.

-- name: stream.register
INSERT INTO consumer_group ("group", type, keyed, registered_at, refreshed_at)
VALUES (:group, :type, :keyed, :now_us, :now_us)
ON CONFLICT ("group") DO UPDATE SET
    type = excluded.type, keyed = excluded.keyed, refreshed_at = excluded.refreshed_at;

-- name: stream.groups
SELECT "group", type FROM consumer_group;

-- name: stream.refresh
UPDATE consumer_group SET refreshed_at = :now_us WHERE "group" = :group;

-- name: stream.fan_out
-- One message per group that is registered for the entry's type.
INSERT INTO message (outbox_id, "group", key, state, lane, priority, next_at)
SELECT o.id, g."group", CASE WHEN g.keyed = 1 THEN o.key END,
       CASE WHEN g.keyed = 1 AND o.key IS NOT NULL THEN 'waiting' ELSE 'ready' END,
       o.lane, o.priority, :now_us::bigint
FROM outbox AS o JOIN consumer_group AS g ON g.type = o.type
WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
ON CONFLICT DO NOTHING;

-- name: stream.fan_out_here
-- The same, but the messages of the entries `mine` in the groups `here` (JSON lists) are claimed by
-- the process that publishes them. Those groups do not want the order of keys.
INSERT INTO message (outbox_id, "group", key, state, lane, priority, next_at, owner, claimed_until)
SELECT f.id, f."group", f.key, f.state, f.lane, f.priority, :now_us::bigint,
       CASE WHEN f.state = 'claimed' THEN :owner END,
       CASE WHEN f.state = 'claimed' THEN :claimed_until::bigint END
FROM (
    SELECT o.id, g."group", o.lane, o.priority, CASE WHEN g.keyed = 1 THEN o.key END AS key,
           CASE WHEN g.keyed = 1 AND o.key IS NOT NULL THEN 'waiting'
                WHEN o.id = ANY (ARRAY(SELECT json_array_elements_text(:mine::json)::bigint))
                    AND g.keyed = 0
                    AND g."group" = ANY (ARRAY(SELECT json_array_elements_text(:here::json)))
                THEN 'claimed' ELSE 'ready' END AS state
    FROM outbox AS o JOIN consumer_group AS g ON g.type = o.type
    WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
) AS f
ON CONFLICT DO NOTHING
RETURNING outbox_id, "group", state;

-- name: stream.keys_of
-- The keys whose messages of these entries wait to be promoted.
SELECT DISTINCT "group", key FROM message
WHERE outbox_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND state NOT IN ('ready', 'claimed', 'dead');

-- name: stream.lock_keys
-- newest
-- Who decides who is first of these keys decides alone, until he has committed: else one that comes
-- and one that ends at the same time would not see each other. In one order, so never in a circle.
SELECT pg_advisory_xact_lock(hash) AS locked FROM (
    SELECT DISTINCT hashtextextended(:group || chr(10) || key, 0) AS hash
    FROM json_array_elements_text(:keys::json) AS key ORDER BY hash) AS locks;

-- name: stream.step_back
-- `keys`: JSON list. Who is ready may not be the first any more.
UPDATE message SET state = 'waiting'
WHERE outbox_id = ANY (ARRAY(
        SELECT r.outbox_id FROM json_array_elements_text(:keys::json) AS k (key)
        CROSS JOIN LATERAL (
            SELECT outbox_id, "group", key, state FROM message
            WHERE key IS NOT NULL AND ("group", key, state) >= (:group, k.key, 'ready')
            ORDER BY "group", key, state, outbox_id LIMIT 1) AS r
        WHERE r."group" = :group AND r.key = k.key AND r.state = 'ready'))
    AND "group" = :group AND state NOT IN ('waiting', 'claimed', 'dead');

-- name: stream.promote
-- The first of each key, with the urgency of all that wait: nobody urgent waits behind the idle.
-- Each row is the first from a place in an index on, so none is searched, whatever was counted.
WITH first AS MATERIALIZED (
    SELECT w.outbox_id, u.lane, u.priority
    FROM (SELECT DISTINCT key FROM json_array_elements_text(:keys::json) AS key) AS k
    CROSS JOIN LATERAL (
        SELECT outbox_id, "group", key, state FROM message
        WHERE key IS NOT NULL AND ("group", key, state) >= (:group, k.key, 'waiting')
        ORDER BY "group", key, state, outbox_id LIMIT 1) AS w
    CROSS JOIN LATERAL (
        SELECT lane, priority FROM message
        WHERE state = 'waiting' AND ("group", key) <= (:group, k.key)
        ORDER BY "group" DESC, key DESC, lane DESC, priority DESC LIMIT 1) AS u
    WHERE w."group" = :group AND w.key = k.key AND w.state = 'waiting'
        AND NOT EXISTS (
            SELECT 1 FROM unnest(ARRAY['ready', 'claimed']) AS s (state)
            CROSS JOIN LATERAL (
                SELECT "group", key, state FROM message
                WHERE key IS NOT NULL AND ("group", key, state) >= (:group, k.key, s.state)
                ORDER BY "group", key, state, outbox_id LIMIT 1) AS h
            WHERE h."group" = :group AND h.key = k.key AND h.state = s.state)
)
UPDATE message AS m SET
    state = 'ready', next_at = greatest(m.next_at, :not_before),
    lane = first.lane, priority = first.priority
FROM first
WHERE m.outbox_id = ANY (ARRAY(SELECT outbox_id FROM first)) AND m.outbox_id = first.outbox_id
    AND m."group" = :group AND m.state NOT IN ('ready', 'claimed', 'dead');

-- name: stream.stranded
-- Keys of which some wait for nobody: none, unless rows were deleted by other means than these.
WITH RECURSIVE k AS (
    (SELECT "group", key FROM message WHERE key IS NOT NULL AND ("group", key) >= (:group, '')
     ORDER BY "group", key, state, outbox_id LIMIT 1)
    UNION ALL
    SELECT n."group", n.key FROM k CROSS JOIN LATERAL (
        SELECT "group", key FROM message WHERE key IS NOT NULL AND ("group", key) > (:group, k.key)
        ORDER BY "group", key, state, outbox_id LIMIT 1) AS n
    WHERE k."group" = :group
)
SELECT k.key FROM k
CROSS JOIN LATERAL (
    SELECT "group", key, state FROM message
    WHERE key IS NOT NULL AND ("group", key, state) >= (:group, k.key, 'waiting')
    ORDER BY "group", key, state, outbox_id LIMIT 1) AS w
WHERE k."group" = :group AND w."group" = :group AND w.key = k.key
    AND NOT EXISTS (
        SELECT 1 FROM unnest(ARRAY['ready', 'claimed']) AS s (state)
        CROSS JOIN LATERAL (
            SELECT "group", key, state FROM message
            WHERE key IS NOT NULL AND ("group", key, state) >= (:group, k.key, s.state)
            ORDER BY "group", key, state, outbox_id LIMIT 1) AS h
        WHERE h."group" = :group AND h.key = k.key AND h.state = s.state);

-- name: stream.levels
-- newest
-- As outbox.levels, for each of the groups.
WITH RECURSIVE level AS (
    SELECT g."group", m.lane, m.priority, m.next_at
    FROM json_array_elements_text(:groups::json) AS g ("group")
    CROSS JOIN LATERAL (
        SELECT lane, priority, next_at FROM message WHERE state = 'ready' AND "group" = g."group"
        ORDER BY lane DESC, priority DESC, next_at, outbox_id LIMIT 1) AS m
    UNION ALL
    SELECT level."group", m.lane, m.priority, m.next_at
    FROM level CROSS JOIN LATERAL (
        SELECT lane, priority, next_at FROM message
        WHERE state = 'ready' AND "group" = level."group"
            AND (lane, priority) < (level.lane, level.priority)
        ORDER BY lane DESC, priority DESC, next_at, outbox_id LIMIT 1) AS m
)
SELECT "group", lane, priority, next_at FROM level;

-- name: stream.due
-- newest
-- Of one lane, most urgent first. What another worker claims at this moment is passed over.
WITH RECURSIVE level AS (
    (SELECT priority FROM message WHERE state = 'ready' AND "group" = :group AND lane = :lane
     ORDER BY priority DESC, next_at, outbox_id LIMIT 1)
    UNION ALL
    SELECT m.priority
    FROM level CROSS JOIN LATERAL (
        SELECT priority FROM message
        WHERE state = 'ready' AND "group" = :group AND lane = :lane AND priority < level.priority
        ORDER BY priority DESC, next_at, outbox_id LIMIT 1) AS m
)
SELECT m.outbox_id, m.key AS order_key, m.attempts, m.history, o.event_id, o.type, o.key,
       o.payload, o.headers, o.created_at,
       coalesce((SELECT s.event_id = o.event_id AND s."group" = :group FROM seen AS s
                 WHERE (s.event_id, s."group") >= (o.event_id, :group)
                 ORDER BY s.event_id, s."group" LIMIT 1), false) AS seen
FROM (
    SELECT c.outbox_id, c.key, c.attempts, c.history, c.priority, c.next_at
    FROM (SELECT priority FROM level ORDER BY priority DESC) AS l
    CROSS JOIN LATERAL (
        SELECT outbox_id, key, attempts, history, priority, next_at FROM message
        WHERE state = 'ready' AND "group" = :group AND lane = :lane AND priority = l.priority
            AND next_at <= :now_us
        ORDER BY next_at, outbox_id LIMIT :limit FOR UPDATE SKIP LOCKED) AS c
    LIMIT :limit
) AS m
CROSS JOIN LATERAL (SELECT event_id, type, key, payload, headers, created_at FROM outbox
                    WHERE id >= m.outbox_id ORDER BY id LIMIT 1) AS o
ORDER BY m.priority DESC, m.next_at, m.outbox_id;

-- name: stream.followers
-- Of each of the `heads` (JSON list of [key, outbox_id]) what comes next of its key, `run` at most,
-- evenly: no key's third before another one's second. Whoever holds the head holds these.
SELECT m.outbox_id, m.key AS order_key, m.attempts, m.history, o.event_id, o.type, o.key,
       o.payload, o.headers, o.created_at,
       coalesce((SELECT s.event_id = o.event_id AND s."group" = :group FROM seen AS s
                 WHERE (s.event_id, s."group") >= (o.event_id, :group)
                 ORDER BY s.event_id, s."group" LIMIT 1), false) AS seen
FROM (
    SELECT r.outbox_id, r.key, r.attempts, r.history, r.n
    FROM json_array_elements(:heads::json) AS head
    CROSS JOIN LATERAL (
        SELECT w.outbox_id, w.key, w.attempts, w.history, row_number() OVER () AS n
        FROM (SELECT outbox_id, "group", key, state, attempts, history FROM message
              WHERE key IS NOT NULL
                  AND ("group", key, state, outbox_id)
                      > (:group, head ->> 0, 'waiting', (head ->> 1)::bigint)
              ORDER BY "group", key, state, outbox_id LIMIT :run) AS w
        WHERE w."group" = :group AND w.key = head ->> 0 AND w.state = 'waiting'
    ) AS r
    ORDER BY r.n, r.outbox_id LIMIT :limit
) AS m
CROSS JOIN LATERAL (SELECT event_id, type, key, payload, headers, created_at FROM outbox
                    WHERE id >= m.outbox_id ORDER BY id LIMIT 1) AS o
ORDER BY m.outbox_id;

-- name: stream.claim
UPDATE message SET state = 'claimed', owner = :owner, claimed_until = :claimed_until
WHERE outbox_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND "group" = :group AND state NOT IN ('claimed', 'dead');

-- name: stream.mark_seen
-- In the order of the ids: two that mark the same wait for each other, but not in a circle.
INSERT INTO seen (event_id, "group", created_at)
SELECT event_id, :group::text, :now_us::bigint
FROM json_array_elements_text(:event_ids::json) AS event_id ORDER BY event_id
ON CONFLICT DO NOTHING;

-- name: stream.done
DELETE FROM message
WHERE outbox_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND "group" = :group AND state NOT IN ('waiting', 'ready', 'dead') AND owner = :owner;

-- name: stream.give_back
UPDATE message SET
    state = CASE WHEN key IS NULL THEN 'ready' ELSE 'waiting' END,
    owner = NULL, claimed_until = NULL
WHERE outbox_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND "group" = :group AND state NOT IN ('waiting', 'ready', 'dead') AND owner = :owner;

-- name: stream.again
UPDATE message SET
    state = CASE WHEN key IS NULL THEN 'ready' ELSE 'waiting' END,
    owner = NULL, claimed_until = NULL,
    next_at = :next_at, attempts = :attempts, history = :history
WHERE outbox_id = :id AND "group" = :group AND state = 'claimed' AND owner = :owner;

-- name: stream.bury
UPDATE message SET state = 'dead', owner = NULL, claimed_until = NULL,
    attempts = :attempts, history = :history, dead_at = :now_us
WHERE outbox_id = :id AND "group" = :group AND state = 'claimed' AND owner = :owner;

-- name: stream.renew
UPDATE message SET claimed_until = :claimed_until WHERE state = 'claimed' AND owner = :owner;

-- name: stream.owners
-- Who holds messages, and when the first of his claims expires.
WITH RECURSIVE holder (owner) AS (
    SELECT min(owner) FROM message WHERE state = 'claimed'
    UNION ALL
    SELECT (SELECT min(owner) FROM message WHERE state = 'claimed' AND owner > holder.owner)
    FROM holder WHERE holder.owner IS NOT NULL
)
SELECT owner, (SELECT min(claimed_until) FROM message
               WHERE state = 'claimed' AND owner = holder.owner) AS claimed_until
FROM holder WHERE owner IS NOT NULL;

-- name: stream.held
SELECT outbox_id, "group", key, attempts, history, claimed_until FROM message
WHERE state = 'claimed' AND owner = :owner
ORDER BY outbox_id, "group" LIMIT :limit;

-- name: stream.depth
SELECT
    EXISTS (SELECT 1 FROM message WHERE state = 'claimed') AS claimed,
    (SELECT count(*) FROM message WHERE state = 'dead') AS dead;
