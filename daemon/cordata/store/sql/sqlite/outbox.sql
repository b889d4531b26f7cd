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
-- (`<` would begin with the entries that are equal and walk over all of them; a column without an
-- expression around it would not be looked up at all, for its affinity.)
WITH RECURSIVE level (id) AS (
    SELECT (SELECT id FROM outbox WHERE state IN ('pending', 'failed')
            ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.id FROM outbox AS o
            WHERE o.state IN ('pending', 'failed')
                AND (o.lane, o.priority) <= (first.lane, first.priority - 1)
            ORDER BY o.lane DESC, o.priority DESC, o.next_at, o.id LIMIT 1)
    FROM level CROSS JOIN outbox AS first ON first.id = level.id
)
SELECT first.lane, first.priority, first.next_at
FROM level CROSS JOIN outbox AS first ON first.id = level.id
ORDER BY first.lane DESC, first.priority DESC;

-- name: outbox.due
-- Level by level as outbox.levels finds them, each in the order of the index: the order of the
-- joins is fixed, so the LIMIT ends the walk. `key` only where a group wants the order of keys.
-- `whole`: with what a handler needs, if the entry was in no broker's hands yet; else `payload` is
-- NULL.
WITH RECURSIVE level (id) AS (
    SELECT (SELECT id FROM outbox WHERE state IN ('pending', 'failed')
            ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.id FROM outbox AS o
            WHERE o.state IN ('pending', 'failed')
                AND (o.lane, o.priority) <= (first.lane, first.priority - 1)
            ORDER BY o.lane DESC, o.priority DESC, o.next_at, o.id LIMIT 1)
    FROM level CROSS JOIN outbox AS first ON first.id = level.id
)
SELECT due.id, due.type, due.lane,
       iif(EXISTS (SELECT 1 FROM consumer_group AS g WHERE g.type = due.type AND g.keyed),
           due.key, NULL) AS key,
       (SELECT count(*) FROM consumer_group AS g WHERE g.type = due.type) AS groups,
       iif(:whole AND due.position IS NULL AND due.attempts = 0, due.payload, NULL) AS payload,
       due.event_id, due.key AS event_key, due.headers, due.created_at
FROM level
CROSS JOIN outbox AS first ON first.id = level.id
CROSS JOIN outbox AS due INDEXED BY outbox_pending
    ON due.state IN ('pending', 'failed')
    AND due.lane = first.lane AND due.priority = first.priority AND due.next_at <= :now_us
LIMIT :limit;

-- name: outbox.claim
-- Claims what outbox.due finds.
UPDATE outbox SET state = 'processing', owner = :owner, claimed_until = :claimed_until
WHERE id IN (
    WITH RECURSIVE level (id) AS (
        SELECT (SELECT id FROM outbox WHERE state IN ('pending', 'failed')
                ORDER BY lane DESC, priority DESC, next_at, id LIMIT 1)
        UNION ALL
        SELECT (SELECT o.id FROM outbox AS o
                WHERE o.state IN ('pending', 'failed')
                    AND (o.lane, o.priority) <= (first.lane, first.priority - 1)
                ORDER BY o.lane DESC, o.priority DESC, o.next_at, o.id LIMIT 1)
        FROM level CROSS JOIN outbox AS first ON first.id = level.id
    )
    SELECT due.id
    FROM level
    CROSS JOIN outbox AS first ON first.id = level.id
    CROSS JOIN outbox AS due INDEXED BY outbox_pending
        ON due.state IN ('pending', 'failed')
        AND due.lane = first.lane AND due.priority = first.priority AND due.next_at <= :now_us
    LIMIT :limit)
RETURNING id, event_id, type, key, lane, priority, payload, headers, attempts, next_at, created_at,
    position;

-- name: outbox.ahead
-- Of types that a group wants in key order: what is due of the same keys, was written earlier and
-- is not among the given ones. Of each key the earliest come first. What was not scheduled for later
-- is due, whatever the clock says: it may have been another host's, or have stepped back since.
SELECT e.id, e.type, e.key FROM (
    SELECT o.type, o.key, max(o.id) AS last
    FROM json_each(:ids) AS i CROSS JOIN outbox AS o ON o.id = i.value
    WHERE o.key IS NOT NULL
        AND EXISTS (SELECT 1 FROM consumer_group AS g WHERE g.type = o.type AND g.keyed)
    GROUP BY o.type, o.key
) AS k
CROSS JOIN outbox AS e INDEXED BY outbox_key
    ON e.state IN ('pending', 'failed') AND e.key IS NOT NULL
    AND e.type = k.type AND e.key = k.key AND e.id < k.last
    AND (e.next_at <= :now_us OR e.next_at <= e.created_at)
WHERE e.id NOT IN (SELECT value FROM json_each(:ids))
LIMIT :limit;

-- name: outbox.take
-- Those of the given ones that wait.
SELECT id FROM outbox
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('pending', 'failed');

-- name: outbox.claim_these
-- Claims what outbox.take finds.
UPDATE outbox SET state = 'processing', owner = :owner, claimed_until = :claimed_until
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('pending', 'failed')
RETURNING id, event_id, type, key, lane, priority, payload, headers, attempts, next_at, created_at,
    position;

-- name: outbox.mark_published
-- Whoever says it: it is true, whatever became of his claim.
UPDATE outbox SET state = 'published', published_at = :now_us, owner = NULL, claimed_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('pending', 'failed', 'processing');

-- name: outbox.again
-- Refused by the broker: `entries` is a JSON list of [id, next_at, error].
UPDATE outbox SET
    state = iif(attempts + 1 < :max_attempts, 'failed', 'dead'), attempts = attempts + 1,
    next_at = refused.next_at, last_error = refused.error, owner = NULL, claimed_until = NULL
FROM (
    SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS next_at,
           json_extract(value, '$[2]') AS error
    FROM json_each(:entries)
) AS refused
WHERE outbox.id = refused.id AND outbox.state = 'processing' AND +outbox.owner = :owner
RETURNING event_id, state;

-- name: outbox.give_back
-- Not tried, or the broker was away: no attempt is counted.
UPDATE outbox SET
    state = iif(attempts > 0, 'failed', 'pending'), owner = NULL, claimed_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'processing' AND +owner = :owner;

-- name: outbox.owners
-- Who holds claims, and when the first of his expires; a handful of rows.
SELECT owner, min(claimed_until) AS claimed_until
FROM outbox INDEXED BY outbox_processing WHERE state = 'processing' GROUP BY owner;

-- name: outbox.reclaim
-- What has expired, and all of the owners that are known dead (`dead`: JSON list).
-- The broker may have them by now: 0 stands for a place that is not known.
UPDATE outbox INDEXED BY outbox_processing SET
    state = iif(attempts > 0, 'failed', 'pending'), owner = NULL, claimed_until = NULL,
    position = coalesce(position, 0)
WHERE state = 'processing'
    AND (claimed_until < :now_us OR owner IN (SELECT value FROM json_each(:dead)));
