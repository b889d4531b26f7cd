-- What waits, for a scrape, `cordata status` and `cordata group list`. A statement with :limit reads that many rows at
-- most, in the order of an index: its counts end there, and the cost does not grow with the backlog. Callers that need
-- exact counts pass a limit that no backlog reaches.

-- name: metrics.groups
SELECT "group", type, broker, since, present_at FROM consumer_group ORDER BY "group";

-- name: metrics.ready
-- The ready messages of a group that are claimed next: how many, how many of them failed before, and
-- since when the oldest of them waits.
SELECT count(*) AS count, count(CASE WHEN attempts > 0 THEN 1 END) AS retrying,
       min(next_at) AS due_at
FROM (SELECT attempts, next_at FROM message
      WHERE "group" = :group AND state = 'ready' AND key IS NULL AND NOT suspect
      ORDER BY priority DESC, position LIMIT :limit) AS m;

-- name: metrics.keyed
-- The same for messages with a key.
SELECT count(*) AS count, count(CASE WHEN attempts > 0 THEN 1 END) AS retrying,
       min(next_at) AS due_at
FROM (SELECT attempts, next_at FROM message
      WHERE "group" = :group AND state = 'ready' AND key IS NOT NULL
      ORDER BY key, position LIMIT :limit) AS m;

-- name: metrics.streamed
-- The events in the stream of a group, in Redis, that it has not handled. Rows are looked up one by
-- one: a join might read the whole of a table.
SELECT count(*) AS count, 0 AS retrying, min(created_at) AS due_at
FROM (SELECT (SELECT e.created_at FROM event AS e
              WHERE e.id = s.event_id AND e.position > :since) AS created_at
      FROM (SELECT event_id FROM redis_sent WHERE type = :type ORDER BY entry LIMIT :limit) AS s
      WHERE (SELECT 1 FROM handled AS h
             WHERE h.event_id = s.event_id AND h."group" = :group LIMIT 1) IS NULL
          AND (SELECT 1 FROM message AS m
               WHERE m.event_id = s.event_id AND m."group" = :group LIMIT 1) IS NULL) AS w
WHERE created_at IS NOT NULL;

-- name: metrics.suspect
-- Of all groups, ready messages without a key whose owner died: each is claimed alone.
SELECT "group", count(*) AS count, count(CASE WHEN attempts > 0 THEN 1 END) AS retrying,
       min(next_at) AS due_at
FROM (SELECT "group", attempts, next_at FROM message
      WHERE state = 'ready' AND suspect AND key IS NULL
      ORDER BY "group", position LIMIT :limit) AS m
GROUP BY "group";

-- name: metrics.scheduled
-- Of all groups, the first that are due.
SELECT "group", count(*) AS count, count(CASE WHEN attempts > 0 THEN 1 END) AS retrying,
       min(next_at) AS due_at
FROM (SELECT "group", attempts, next_at FROM message WHERE state = 'scheduled'
      ORDER BY next_at LIMIT :limit) AS m
GROUP BY "group";

-- name: metrics.claimed
SELECT "group", count(*) AS count
FROM (SELECT "group" FROM message WHERE state = 'claimed' ORDER BY owner, claim LIMIT :limit) AS m
GROUP BY "group";

-- name: metrics.dead
SELECT "group", count(*) AS count
FROM (SELECT "group" FROM message WHERE state = 'dead' ORDER BY dead_at LIMIT :limit) AS m
GROUP BY "group";

-- name: metrics.mail
SELECT count(*) AS count, min(created_at) AS oldest_at
FROM (SELECT created_at FROM mail WHERE state IN ('pending', 'sending')
      ORDER BY next_at, id LIMIT :limit) AS m;
