-- The relay's view of the outbox.
--
--     pending --claim--> processing --published--> published
--        ^                 |   |
--        +--given back-----+   +--refused--> failed (due again at next_at; claimed as pending is)
--        +--claim expired--+   +--refused for the last time--> dead
--
-- The store's own broker moves entries from pending to published in one unit.

-- name: outbox.levels
-- Each (lane, priority) that has waiting entries, most urgent first, and when its earliest is due.
-- Steps from level to level on the index, so neither backlog nor scheduled entries cost anything.
WITH RECURSIVE level AS (
    (SELECT lane, priority, next_at FROM outbox WHERE state IN ('pending', 'failed')
     ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1)
    UNION ALL
    SELECT o.lane, o.priority, o.next_at
    FROM level CROSS JOIN LATERAL (
        SELECT lane, priority, next_at FROM outbox
        WHERE state IN ('pending', 'failed') AND (lane, priority) < (level.lane, level.priority)
        ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1) AS o
)
SELECT lane, priority, next_at FROM level ORDER BY lane DESC, priority DESC;

-- name: outbox.due
-- newest
-- Level by level as outbox.levels finds them. What another relay has in hand is passed over: it
-- will be published by that one. `key` only where a group wants the order of keys. `whole`: with
-- what a handler needs, if the entry was in no broker's hands yet; else `payload` is NULL.
WITH RECURSIVE level AS (
    (SELECT lane, priority FROM outbox WHERE state IN ('pending', 'failed')
     ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1)
    UNION ALL
    SELECT o.lane, o.priority
    FROM level CROSS JOIN LATERAL (
        SELECT lane, priority FROM outbox
        WHERE state IN ('pending', 'failed') AND (lane, priority) < (level.lane, level.priority)
        ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1) AS o
)
SELECT due.id, due.type, due.lane,
       CASE WHEN EXISTS (SELECT 1 FROM consumer_group AS g
                         WHERE g.type = due.type AND g.keyed = 1) THEN due.key END AS key,
       (SELECT count(*) FROM consumer_group AS g WHERE g.type = due.type) AS groups,
       CASE WHEN :whole AND due.position IS NULL AND due.attempts = 0
            THEN due.payload END AS payload,
       due.event_id, due.key AS event_key, due.headers, due.created_at
FROM (SELECT lane, priority FROM level ORDER BY lane DESC, priority DESC) AS l
CROSS JOIN LATERAL (
    SELECT * FROM outbox
    WHERE state IN ('pending', 'failed') AND lane = l.lane AND priority = l.priority
        AND next_at <= :now_us
    ORDER BY next_at, id LIMIT :limit FOR UPDATE SKIP LOCKED) AS due
LIMIT :limit;

-- name: outbox.claim
-- newest
-- Claims what outbox.due finds.
WITH RECURSIVE level AS (
    (SELECT lane, priority FROM outbox WHERE state IN ('pending', 'failed')
     ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1)
    UNION ALL
    SELECT o.lane, o.priority
    FROM level CROSS JOIN LATERAL (
        SELECT lane, priority FROM outbox
        WHERE state IN ('pending', 'failed') AND (lane, priority) < (level.lane, level.priority)
        ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1) AS o
), due AS MATERIALIZED (
    SELECT o.id
    FROM (SELECT lane, priority FROM level ORDER BY lane DESC, priority DESC) AS l
    CROSS JOIN LATERAL (
        SELECT id FROM outbox
        WHERE state IN ('pending', 'failed') AND lane = l.lane AND priority = l.priority
            AND next_at <= :now_us
        ORDER BY next_at, id LIMIT :limit FOR UPDATE SKIP LOCKED) AS o
    LIMIT :limit
)
UPDATE outbox SET state = 'processing', owner = :owner, claimed_until = :claimed_until
WHERE id = ANY (ARRAY(SELECT id FROM due))
RETURNING id, event_id, type, key, lane, priority, payload, headers, attempts, next_at, created_at,
    position;

-- name: outbox.ahead
-- Of types that a group wants in key order: what is due of the same keys, was written earlier and
-- is not among the given ones, whoever has it in hand. Of each key the earliest come first. What was
-- not scheduled for later is due, whatever the clock says: it may have been another host's, or have
-- stepped back since.
SELECT e.id, e.type, e.key FROM (
    SELECT o.type, o.key, max(o.id) AS last
    FROM outbox AS o
    WHERE o.id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
        AND o.key IS NOT NULL
        AND EXISTS (SELECT 1 FROM consumer_group AS g WHERE g.type = o.type AND g.keyed = 1)
    GROUP BY o.type, o.key
) AS k
CROSS JOIN LATERAL (
    SELECT id, type, key FROM outbox
    WHERE state IN ('pending', 'failed') AND key IS NOT NULL
        AND (type, key) >= (k.type, k.key) AND (type, key, id) < (k.type, k.key, k.last)
        AND (next_at <= :now_us OR next_at <= created_at)
        AND id <> ALL (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    ORDER BY type, key, id LIMIT :limit) AS e
LIMIT :limit;

-- name: outbox.take
-- newest
-- Those of the given ones that wait and are in nobody's hands.
SELECT id FROM outbox
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND state IN ('pending', 'failed')
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: outbox.claim_these
-- newest
-- Claims what outbox.take finds.
WITH taken AS MATERIALIZED (
    SELECT id FROM outbox
    WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
        AND state IN ('pending', 'failed')
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE outbox SET state = 'processing', owner = :owner, claimed_until = :claimed_until
WHERE id = ANY (ARRAY(SELECT id FROM taken))
RETURNING id, event_id, type, key, lane, priority, payload, headers, attempts, next_at, created_at,
    position;

-- name: outbox.mark_published
-- Whoever says it: it is true, whatever became of his claim.
UPDATE outbox SET state = 'published', published_at = :now_us, owner = NULL, claimed_until = NULL
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND state IN ('pending', 'failed', 'processing');

-- name: outbox.again
-- Refused by the broker: `entries` is a JSON list of [id, next_at, error].
UPDATE outbox SET
    state = CASE WHEN attempts + 1 < :max_attempts THEN 'failed' ELSE 'dead' END,
    attempts = attempts + 1,
    next_at = refused.next_at, last_error = refused.error, owner = NULL, claimed_until = NULL
FROM (
    SELECT (entry ->> 0)::bigint AS id, (entry ->> 1)::bigint AS next_at, entry ->> 2 AS error
    FROM json_array_elements(:entries::json) AS entry
) AS refused
WHERE outbox.id = refused.id AND outbox.state = 'processing' AND outbox.owner = :owner
RETURNING event_id, state;

-- name: outbox.give_back
-- Not tried, or the broker was away: no attempt is counted.
UPDATE outbox SET
    state = CASE WHEN attempts > 0 THEN 'failed' ELSE 'pending' END,
    owner = NULL, claimed_until = NULL
WHERE id = ANY (ARRAY(SELECT json_array_elements_text(:ids::json)::bigint))
    AND state = 'processing' AND owner = :owner;

-- name: outbox.owners
-- Who holds claims, and when the first of his expires; a handful of rows.
SELECT owner, min(claimed_until) AS claimed_until
FROM outbox WHERE state = 'processing' GROUP BY owner;

-- name: outbox.reclaim
-- What has expired, and all of the owners that are known dead (`dead`: JSON list).
-- The broker may have them by now: 0 stands for a place that is not known.
UPDATE outbox SET
    state = CASE WHEN attempts > 0 THEN 'failed' ELSE 'pending' END,
    owner = NULL, claimed_until = NULL, position = coalesce(position, 0)
WHERE id = ANY (ARRAY(
    SELECT id FROM outbox
    WHERE state = 'processing'
        AND (claimed_until < :now_us
             OR owner = ANY (ARRAY(SELECT json_array_elements_text(:dead::json))))
    ORDER BY id FOR UPDATE SKIP LOCKED));
