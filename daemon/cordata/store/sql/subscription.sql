-- Subscriptions to the event store: their partitions, with owners and positions.

-- name: subscription.add
-- No row changed: the subscription is registered already.
INSERT INTO subscription (name, category, partitions, origin, created_at)
VALUES (:name, :category, :partitions, :origin, :now_us)
ON CONFLICT (name) DO NOTHING;

-- name: subscription.change_category
UPDATE subscription SET category = :category WHERE name = :name AND category <> :category;

-- name: subscription.add_partition
INSERT INTO subscription_partition (subscription, partition, position, term)
VALUES (:subscription, :partition, :position, :term);

-- name: subscription.all
SELECT name, category, partitions, origin, created_at, reset_at FROM subscription ORDER BY name;

-- name: subscription.get
SELECT name, category, partitions, origin, created_at, reset_at FROM subscription
WHERE name = :name;

-- name: subscription.partitions
SELECT subscription, partition, position, term, owner, failing, attempts, next_at, history,
       blocked_at
FROM subscription_partition
WHERE subscription IN :subscriptions[text]
ORDER BY subscription, partition;

-- name: subscription.partition
SELECT position, term, owner FROM subscription_partition
WHERE subscription = :subscription AND partition = :partition;

-- name: subscription.release
UPDATE subscription_partition
SET owner = NULL, position = CASE WHEN position > :position THEN position ELSE :position END,
    attempts = CASE WHEN failing > :position THEN attempts ELSE 0 END,
    next_at = CASE WHEN failing > :position THEN next_at END,
    history = CASE WHEN failing > :position THEN history END,
    failing = CASE WHEN failing > :position THEN failing END
WHERE subscription = :subscription AND partition = :partition AND owner = :owner AND term = :term;

-- name: subscription.advance
-- No row changed: the event was handled before, or another process owns the partition. A failure
-- after this position stays stored.
UPDATE subscription_partition
SET position = :position,
    attempts = CASE WHEN failing > :position THEN attempts ELSE 0 END,
    next_at = CASE WHEN failing > :position THEN next_at END,
    history = CASE WHEN failing > :position THEN history END,
    failing = CASE WHEN failing > :position THEN failing END
WHERE subscription = :subscription AND partition = :partition AND owner = :owner AND term = :term
    AND position < :position;

-- name: subscription.fail
UPDATE subscription_partition
SET failing = :position, attempts = :attempts, next_at = :next_at, history = :history,
    blocked_at = :blocked_at
WHERE subscription = :subscription AND partition = :partition AND owner = :owner AND term = :term
    AND position < :position;

-- name: subscription.give_up
INSERT INTO subscription_dead_event (subscription, position, attempts, history, dead_at)
VALUES (:subscription, :position, :attempts, :history, :now_us)
ON CONFLICT (subscription, position) DO NOTHING;

-- name: subscription.resume
UPDATE subscription_partition
SET failing = NULL, attempts = 0, next_at = NULL, history = NULL, blocked_at = NULL
WHERE subscription = :subscription AND partition = :partition AND failing = :failing
    AND blocked_at IS NOT NULL;

-- name: subscription.skip
UPDATE subscription_partition
SET position = failing, failing = NULL, attempts = 0, next_at = NULL, history = NULL,
    blocked_at = NULL
WHERE subscription = :subscription AND partition = :partition AND failing = :failing
    AND blocked_at IS NOT NULL;

-- name: subscription.pause
UPDATE subscription SET paused_until = :until WHERE name = :name;

-- name: subscription.newest_term
SELECT coalesce(max(term), 0) AS term FROM subscription_partition
WHERE subscription = :subscription;

-- name: subscription.drop_partitions
DELETE FROM subscription_partition WHERE subscription = :subscription;

-- name: subscription.drop_dead_events
DELETE FROM subscription_dead_event WHERE subscription = :subscription;

-- name: subscription.drop
DELETE FROM subscription WHERE name = :name;

-- name: subscription.restart
UPDATE subscription
SET partitions = :partitions, origin = :origin, reset_at = :now_us, paused_until = NULL
WHERE name = :name;

-- name: subscription.dead_events
SELECT l.position, l.attempts, l.history, l.dead_at, e.stream, e.version, e.type, e.payload,
       e.headers, e.created_at
FROM subscription_dead_event AS l JOIN stored_event AS e ON e.position = l.position
WHERE l.subscription = :subscription AND l.position < :before
ORDER BY l.position DESC LIMIT :limit;

-- name: subscription.dead_event_count
SELECT subscription, count(*) AS count FROM subscription_dead_event GROUP BY subscription;

-- name: subscription.claim
-- Claims the wanted partitions (of :partitions in all) that have no living owner. On PostgreSQL,
-- partitions that another process claims or writes at this moment are skipped.
UPDATE subscription_partition SET owner = :owner, term = term + 1
WHERE subscription = :subscription AND partition IN (
    SELECT p.partition FROM subscription_partition AS p
    WHERE p.subscription = :subscription
        AND p.partition IN :wanted[bigint]
        AND NOT EXISTS (SELECT 1 FROM process AS w
                        WHERE w.id = p.owner AND w.expires_at > :now_us)
        AND EXISTS (SELECT 1 FROM subscription AS s
                    WHERE s.name = :subscription AND s.partitions = :partitions
                        AND coalesce(s.paused_until, 0) <= :now_us)
    ORDER BY p.partition {|FOR UPDATE SKIP LOCKED})
RETURNING partition, position, term, failing, attempts, next_at, history, blocked_at;

-- name: subscription.take_away
-- Ends all claims of partitions. The terms skip some numbers, so that crashes under earlier claims are
-- not counted later. Rows are locked in the order of partitions, so that two processes cannot deadlock.
UPDATE subscription_partition SET term = term + 16, owner = NULL
WHERE subscription = :subscription AND partition IN (
    SELECT p.partition FROM subscription_partition AS p
    WHERE p.subscription = :subscription ORDER BY p.partition {|FOR UPDATE});

-- name: subscription.left
-- Number of events that each partition has to handle among the next `cap` of the category; `seen` is
-- how many events were examined, `reached` the position of the last of them.
SELECT p.partition, sum(CASE WHEN e.position > p.position THEN 1 ELSE 0 END) AS count,
       count(*) AS seen, max(e.position) AS reached
FROM (SELECT position, bucket FROM stored_event{ INDEXED BY stored_event_category|}
      WHERE category = :category AND position > :after AND position <= :until
      ORDER BY {|category, }position LIMIT :cap) AS e
{CROSS JOIN|JOIN} subscription_partition AS p
    ON p.subscription = :subscription AND p.partition = e.bucket % CAST(:partitions AS INTEGER)
GROUP BY p.partition ORDER BY p.partition;
