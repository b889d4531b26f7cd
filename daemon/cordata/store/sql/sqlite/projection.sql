-- Subscriptions to the event store: their partitions, who owns them, how far they are.

-- name: projection.add
-- No row changed: it is known already.
INSERT INTO projection (name, category, partitions, origin, created_at)
VALUES (:name, :category, :partitions, :origin, :now_us)
ON CONFLICT (name) DO NOTHING;

-- name: projection.change_category
UPDATE projection SET category = :category WHERE name = :name AND category <> :category;

-- name: projection.add_partition
INSERT INTO projection_partition (projection, partition, position, term)
VALUES (:projection, :partition, :position, :term);

-- name: projection.all
SELECT name, category, partitions, origin, created_at, reset_at FROM projection ORDER BY name;

-- name: projection.get
SELECT name, category, partitions, origin, created_at, reset_at FROM projection WHERE name = :name;

-- name: projection.partitions
SELECT projection, partition, position, term, owner, failing, attempts, next_at, history, blocked_at
FROM projection_partition WHERE projection IN (SELECT value FROM json_each(:projections))
ORDER BY projection, partition;

-- name: projection.partition
SELECT position, term, owner FROM projection_partition
WHERE projection = :projection AND partition = :partition;

-- name: projection.workers
SELECT owner, projections, expires_at FROM projection_worker ORDER BY owner;

-- name: projection.join
INSERT INTO projection_worker (owner, projections, expires_at)
VALUES (:owner, :projections, :expires_at)
ON CONFLICT (owner) DO UPDATE SET
    projections = excluded.projections, expires_at = excluded.expires_at;

-- name: projection.leave
-- What they own is free from now on.
DELETE FROM projection_worker WHERE owner IN (SELECT value FROM json_each(:owners));

-- name: projection.forget_workers
DELETE FROM projection_worker WHERE expires_at < :before;

-- name: projection.claim
-- Of the wanted partitions, out of so many, those that nobody owns who lives.
UPDATE projection_partition SET owner = :owner, term = term + 1
WHERE projection = :projection AND partition IN (SELECT value FROM json_each(:wanted))
    AND NOT EXISTS (SELECT 1 FROM projection_worker AS w
                    WHERE w.owner = projection_partition.owner AND w.expires_at > :now_us)
    AND EXISTS (SELECT 1 FROM projection AS s
                WHERE s.name = :projection AND s.partitions = :partitions
                    AND coalesce(s.paused_until, 0) <= :now_us)
RETURNING partition, position, term, failing, attempts, next_at, history, blocked_at;

-- name: projection.release
UPDATE projection_partition
SET owner = NULL, position = max(position, :position),
    attempts = CASE WHEN failing > :position THEN attempts ELSE 0 END,
    next_at = CASE WHEN failing > :position THEN next_at END,
    history = CASE WHEN failing > :position THEN history END,
    failing = CASE WHEN failing > :position THEN failing END
WHERE projection = :projection AND partition = :partition AND owner = :owner AND term = :term;

-- name: projection.advance
-- No row changed: it was handled before, or the partition is another's. What failed after this
-- position stays known.
UPDATE projection_partition
SET position = :position,
    attempts = CASE WHEN failing > :position THEN attempts ELSE 0 END,
    next_at = CASE WHEN failing > :position THEN next_at END,
    history = CASE WHEN failing > :position THEN history END,
    failing = CASE WHEN failing > :position THEN failing END
WHERE projection = :projection AND partition = :partition AND owner = :owner AND term = :term
    AND position < :position;

-- name: projection.fail
UPDATE projection_partition
SET failing = :position, attempts = :attempts, next_at = :next_at, history = :history,
    blocked_at = :blocked_at
WHERE projection = :projection AND partition = :partition AND owner = :owner AND term = :term
    AND position < :position;

-- name: projection.bury
INSERT INTO projection_letter (projection, position, attempts, history, dead_at)
VALUES (:projection, :position, :attempts, :history, :now_us)
ON CONFLICT (projection, position) DO NOTHING;

-- name: projection.resume
UPDATE projection_partition
SET failing = NULL, attempts = 0, next_at = NULL, history = NULL, blocked_at = NULL
WHERE projection = :projection AND partition = :partition AND failing = :failing
    AND blocked_at IS NOT NULL;

-- name: projection.skip
UPDATE projection_partition
SET position = failing, failing = NULL, attempts = 0, next_at = NULL, history = NULL,
    blocked_at = NULL
WHERE projection = :projection AND partition = :partition AND failing = :failing
    AND blocked_at IS NOT NULL;

-- name: projection.pause
UPDATE projection SET paused_until = :until WHERE name = :name;

-- name: projection.take_away
-- Every right to a partition ends, and a gap is left: what died under it is not counted later.
UPDATE projection_partition SET term = term + 16, owner = NULL WHERE projection = :projection;

-- name: projection.newest_term
SELECT coalesce(max(term), 0) AS term FROM projection_partition WHERE projection = :projection;

-- name: projection.drop_partitions
DELETE FROM projection_partition WHERE projection = :projection;

-- name: projection.drop_letters
DELETE FROM projection_letter WHERE projection = :projection;

-- name: projection.drop
DELETE FROM projection WHERE name = :name;

-- name: projection.restart
UPDATE projection
SET partitions = :partitions, origin = :origin, reset_at = :now_us, paused_until = NULL
WHERE name = :name;

-- name: projection.left
-- How many events each partition has still to handle, counted over the next `cap` of the category;
-- `seen` is how many were looked at, `reached` where that ended.
SELECT p.partition, sum(CASE WHEN e.position > p.position THEN 1 ELSE 0 END) AS count,
       count(*) AS seen, max(e.position) AS reached
FROM (SELECT position, bucket FROM event INDEXED BY event_category
      WHERE category = :category AND position > :after AND position <= :until
      ORDER BY position LIMIT :cap) AS e
CROSS JOIN projection_partition AS p
    ON p.projection = :projection AND p.partition = e.bucket % :partitions
GROUP BY p.partition ORDER BY p.partition;

-- name: projection.letters
SELECT l.position, l.attempts, l.history, l.dead_at, e.stream, e.version, e.type, e.payload,
       e.headers, e.created_at
FROM projection_letter AS l CROSS JOIN event AS e ON e.position = l.position
WHERE l.projection = :projection AND l.position < :before
ORDER BY l.position DESC LIMIT :limit;

-- name: projection.letter_count
SELECT projection, count(*) AS count FROM projection_letter GROUP BY projection;
