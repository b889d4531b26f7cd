-- The store broker: groups, messages, claims, dead letters.
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
SELECT o.id, g."group", iif(g.keyed, o.key, NULL),
       iif(g.keyed AND o.key IS NOT NULL, 'waiting', 'ready'), o.lane, o.priority, :now_us
FROM json_each(:ids) AS i
CROSS JOIN outbox AS o ON o.id = i.value
JOIN consumer_group AS g ON g.type = o.type
WHERE true
ON CONFLICT DO NOTHING;

-- name: stream.fan_out_here
-- The same, but the messages of the entries `mine` in the groups `here` (JSON lists) are claimed by
-- the process that publishes them. Those groups do not want the order of keys.
INSERT INTO message (outbox_id, "group", key, state, lane, priority, next_at, owner, claimed_until)
SELECT f.id, f."group", f.key, f.state, f.lane, f.priority, :now_us,
       iif(f.state = 'claimed', :owner, NULL), iif(f.state = 'claimed', :claimed_until, NULL)
FROM (
    SELECT o.id, g."group", o.lane, o.priority, iif(g.keyed, o.key, NULL) AS key,
           CASE WHEN g.keyed AND o.key IS NOT NULL THEN 'waiting'
                WHEN o.id IN (SELECT value FROM json_each(:mine)) AND NOT g.keyed
                    AND g."group" IN (SELECT value FROM json_each(:here))
                THEN 'claimed' ELSE 'ready' END AS state
    FROM json_each(:ids) AS i
    CROSS JOIN outbox AS o ON o.id = i.value
    JOIN consumer_group AS g ON g.type = o.type
) AS f
WHERE true
ON CONFLICT DO NOTHING
RETURNING outbox_id, "group", state;

-- name: stream.keys_of
-- The keys whose messages of these entries wait to be promoted.
SELECT DISTINCT m."group", m.key
FROM json_each(:ids) AS i CROSS JOIN message AS m ON m.outbox_id = i.value
WHERE m.state = 'waiting';

-- name: stream.lock_keys
-- On PostgreSQL two must not decide at once who is first. Here the one writer decides.
SELECT value AS locked FROM json_each(:keys) WHERE :group IS NULL;

-- name: stream.step_back
-- `keys`: JSON list. Who is ready may not be the first any more.
UPDATE message SET state = 'waiting'
WHERE "group" = :group AND state = 'ready' AND key IS NOT NULL AND outbox_id IN (
    SELECT m.outbox_id
    FROM json_each(:keys) AS k CROSS JOIN message AS m INDEXED BY message_key
        ON m."group" = :group AND m.key = k.value AND m.state = 'ready');

-- name: stream.promote
-- The first of each key, with the urgency of all that wait: nobody urgent waits behind the idle.
UPDATE message SET
    state = 'ready', next_at = max(next_at, :not_before),
    (lane, priority) = (
        SELECT u.lane, u.priority FROM message AS u
        WHERE u.state = 'waiting' AND u."group" = message."group" AND u.key = message.key
        ORDER BY u.lane DESC, u.priority DESC LIMIT 1)
WHERE "group" = :group AND outbox_id IN (
    SELECT (SELECT min(w.outbox_id) FROM message AS w
            WHERE w."group" = :group AND w.key = k.value AND w.state = 'waiting')
    FROM json_each(:keys) AS k
    WHERE NOT EXISTS (
        SELECT 1 FROM message AS h
        WHERE h."group" = :group AND h.key = k.value AND h.state IN ('ready', 'claimed')));

-- name: stream.stranded
-- Keys of which some wait for nobody: none, unless rows were deleted by other means than these.
WITH RECURSIVE k (key) AS (
    SELECT min(key) FROM message WHERE key IS NOT NULL AND "group" = :group
    UNION ALL
    SELECT (SELECT min(m.key) FROM message AS m WHERE m."group" = :group AND m.key > k.key)
    FROM k WHERE k.key IS NOT NULL
)
SELECT key FROM k
WHERE EXISTS (SELECT 1 FROM message AS w
              WHERE w."group" = :group AND w.key = k.key AND w.state = 'waiting')
    AND NOT EXISTS (SELECT 1 FROM message AS h
                    WHERE h."group" = :group AND h.key = k.key AND h.state IN ('ready', 'claimed'));

-- name: stream.levels
-- As outbox.levels, for each of the groups.
WITH RECURSIVE level (id, "group") AS (
    SELECT (SELECT m.outbox_id FROM message AS m
            WHERE m.state = 'ready' AND m."group" = g.value
            ORDER BY m.lane DESC, m.priority DESC, m.next_at, m.outbox_id LIMIT 1), g.value
    FROM json_each(:groups) AS g
    UNION ALL
    SELECT (SELECT m.outbox_id FROM message AS m
            WHERE m.state = 'ready' AND m."group" = level."group"
                AND (m.lane, m.priority) <= (first.lane, first.priority - 1)
            ORDER BY m.lane DESC, m.priority DESC, m.next_at, m.outbox_id LIMIT 1), level."group"
    FROM level CROSS JOIN message AS first
        ON first.outbox_id = level.id AND first."group" = level."group"
)
SELECT first."group", first.lane, first.priority, first.next_at
FROM level CROSS JOIN message AS first
    ON first.outbox_id = level.id AND first."group" = level."group";

-- name: stream.due
-- Of one lane, most urgent first, then in the order of the index: the order of the joins is fixed.
WITH RECURSIVE level (priority) AS (
    SELECT max(priority) FROM message
    WHERE state = 'ready' AND "group" = :group AND lane = :lane
    UNION ALL
    SELECT (SELECT max(m.priority) FROM message AS m
            WHERE m.state = 'ready' AND m."group" = :group AND m.lane = :lane
                AND m.priority < level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT m.outbox_id, m.key AS order_key, m.attempts, m.history, o.event_id, o.type, o.key,
       o.payload, o.headers, o.created_at,
       EXISTS (SELECT 1 FROM seen AS s
               WHERE s.event_id = o.event_id AND s."group" = m."group") AS seen
FROM level
CROSS JOIN message AS m INDEXED BY message_ready
    ON m.state = 'ready' AND m."group" = :group AND m.lane = :lane
    AND m.priority = level.priority AND m.next_at <= :now_us
CROSS JOIN outbox AS o ON o.id = m.outbox_id
LIMIT :limit;

-- name: stream.followers
-- Of each of the `heads` (JSON list of [key, outbox_id]) what comes next of its key, `run` at most,
-- evenly: no key's third before another one's second.
WITH RECURSIVE run (key, id, n) AS (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), 0 FROM json_each(:heads)
    UNION ALL
    SELECT run.key, (SELECT min(m.outbox_id) FROM message AS m
                     WHERE m."group" = :group AND m.key = run.key AND m.state = 'waiting'
                         AND m.outbox_id > run.id), run.n + 1
    FROM run WHERE run.id IS NOT NULL AND run.n < :run
)
SELECT m.outbox_id, m.key AS order_key, m.attempts, m.history, o.event_id, o.type, o.key,
       o.payload, o.headers, o.created_at,
       EXISTS (SELECT 1 FROM seen AS s
               WHERE s.event_id = o.event_id AND s."group" = m."group") AS seen
FROM run
CROSS JOIN message AS m ON m.outbox_id = run.id AND m."group" = :group
CROSS JOIN outbox AS o ON o.id = m.outbox_id
WHERE run.n > 0
LIMIT :limit;

-- name: stream.claim
UPDATE message SET state = 'claimed', owner = :owner, claimed_until = :claimed_until
WHERE outbox_id IN (SELECT value FROM json_each(:ids)) AND "group" = :group
    AND state IN ('ready', 'waiting');

-- name: stream.mark_seen
INSERT INTO seen (event_id, "group", created_at)
SELECT value, :group, :now_us FROM json_each(:event_ids) WHERE true
ON CONFLICT DO NOTHING;

-- name: stream.done
DELETE FROM message
WHERE outbox_id IN (SELECT value FROM json_each(:ids)) AND "group" = :group
    AND state = 'claimed' AND owner = :owner;

-- name: stream.give_back
UPDATE message SET
    state = iif(key IS NULL, 'ready', 'waiting'), owner = NULL, claimed_until = NULL
WHERE outbox_id IN (SELECT value FROM json_each(:ids)) AND "group" = :group
    AND state = 'claimed' AND owner = :owner;

-- name: stream.again
UPDATE message SET
    state = iif(key IS NULL, 'ready', 'waiting'), owner = NULL, claimed_until = NULL,
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
