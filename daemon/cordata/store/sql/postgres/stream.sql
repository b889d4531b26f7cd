-- The store broker: groups, messages, claims, dead letters.
--
-- Sets of messages are looked up by their key, in whose order their rows are locked. Where a
-- condition says which states they are not in, it means the one that is left: named by itself it
-- would bring the index of that state into play, and a walk through all that waits.

-- name: stream.register
INSERT INTO consumer_group ("group", type, registered_at, refreshed_at)
VALUES (:group, :type, :now_us, :now_us)
ON CONFLICT ("group") DO UPDATE SET type = excluded.type, refreshed_at = excluded.refreshed_at;

-- name: stream.fan_out
-- One message per group that is registered for the entry's type.
INSERT INTO message (outbox_id, "group", priority, next_at)
SELECT o.id, g."group", o.priority, :now_us::bigint
FROM outbox AS o JOIN consumer_group AS g ON g.type = o.type
WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
ON CONFLICT DO NOTHING;

-- name: stream.levels
-- As outbox.levels, for one group.
WITH RECURSIVE level (priority) AS (
    SELECT max(priority) FROM message WHERE state = 'ready' AND "group" = :group
    UNION ALL
    SELECT (SELECT max(priority) FROM message
            WHERE state = 'ready' AND "group" = :group AND priority < level.priority)
    FROM level WHERE level.priority IS NOT NULL
)
SELECT priority, (SELECT next_at FROM message
                  WHERE state = 'ready' AND "group" = :group AND priority = level.priority
                  ORDER BY next_at LIMIT 1) AS next_at
FROM level WHERE priority IS NOT NULL ORDER BY priority DESC;

-- name: stream.due
-- What another worker claims at this moment is passed over.
SELECT m.outbox_id, m.attempts, m.history, o.event_id, o.type, o.key, o.payload, o.headers,
       o.created_at,
       EXISTS (SELECT 1 FROM seen AS s
               WHERE s.event_id = o.event_id AND s."group" = :group) AS seen
FROM (SELECT outbox_id, attempts, history, next_at FROM message
      WHERE state = 'ready' AND "group" = :group AND priority = :priority AND next_at <= :now_us
      ORDER BY next_at, outbox_id LIMIT :limit FOR UPDATE SKIP LOCKED) AS m
-- LIMIT 1: looked up one by one, whatever the planner thinks of the number of messages.
CROSS JOIN LATERAL (SELECT event_id, type, key, payload, headers, created_at FROM outbox
                    WHERE id = m.outbox_id LIMIT 1) AS o
ORDER BY m.next_at, m.outbox_id;

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
    AND "group" = :group AND state NOT IN ('ready', 'dead') AND owner = :owner;

-- name: stream.give_back
UPDATE message SET state = 'ready', owner = NULL, claimed_until = NULL
WHERE outbox_id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND "group" = :group AND state NOT IN ('ready', 'dead') AND owner = :owner;

-- name: stream.again
UPDATE message SET state = 'ready', owner = NULL, claimed_until = NULL,
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
SELECT outbox_id, "group", attempts, history, claimed_until FROM message
WHERE state = 'claimed' AND owner = :owner
ORDER BY outbox_id, "group" LIMIT :limit;

-- name: stream.depth
SELECT
    EXISTS (SELECT 1 FROM message WHERE state = 'claimed') AS claimed,
    (SELECT count(*) FROM message WHERE state = 'dead') AS dead;
