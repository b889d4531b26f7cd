-- Statements for PostgreSQL only; those for both stores are in ../subscription.sql.

-- name: subscription.claim
-- Claims the wanted partitions (of :partitions in all) that have no living owner. Partitions that
-- another process claims or writes at this moment are skipped.
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
    ORDER BY p.partition FOR UPDATE SKIP LOCKED)
RETURNING partition, position, term, failing, attempts, next_at, history, blocked_at;

-- name: subscription.take_away
-- Ends all claims of partitions. The terms skip some numbers, so that crashes under earlier claims are
-- not counted later. Rows are locked in the order of partitions, so that two processes cannot deadlock.
UPDATE subscription_partition SET term = term + 16, owner = NULL
WHERE subscription = :subscription AND partition IN (
    SELECT p.partition FROM subscription_partition AS p
    WHERE p.subscription = :subscription ORDER BY p.partition FOR UPDATE);

-- name: subscription.left
-- Number of events that each partition has to handle among the next `cap` of the category; `seen` is
-- how many events were examined, `reached` the position of the last of them.
SELECT p.partition, sum(CASE WHEN e.position > p.position THEN 1 ELSE 0 END) AS count,
       count(*) AS seen, max(e.position) AS reached
FROM (SELECT position, bucket FROM stored_event
      WHERE category = :category AND position > :after AND position <= :until
      ORDER BY category, position LIMIT :cap) AS e
JOIN subscription_partition AS p
    ON p.subscription = :subscription AND p.partition = e.bucket % :partitions::integer
GROUP BY p.partition ORDER BY p.partition;
