-- What waits, for a scrape and for `cordata status`. Every statement reads :limit rows at most, in the order of an index: the
-- counts end there, and the cost does not grow with the backlog.

-- name: metrics.groups
SELECT "group", broker, present_at FROM consumer_group ORDER BY "group";

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
