-- Statements for SQLite only; those for both stores are in ../queue.sql.

-- name: queue.publish
-- The trigger event_fan_out adds its messages.
INSERT INTO event (id, type, key, priority, payload, headers, due_at, created_at)
VALUES (:event_id, :type, :key, :priority, :payload, :headers, :due_at, :created_at);

-- name: queue.last_position
-- One process writes at a time, so no other publishes meanwhile.
SELECT coalesce(max(position), 0) AS position, '' AS xid FROM event;

-- name: queue.older_writers
-- None: one process writes at a time.
SELECT 0 AS count WHERE :xid <> '' LIMIT 1;

-- name: queue.promote
UPDATE message SET state = 'ready' WHERE (event_id, "group") IN (
    SELECT event_id, "group" FROM message
    WHERE state = 'scheduled' AND next_at <= :now_us ORDER BY next_at LIMIT :limit);

-- name: queue.ready
-- Groups with messages to claim; of a keyed group perhaps none can be claimed now.
SELECT g."group" FROM consumer_group AS g
WHERE g."group" IN :groups[text] AND (
    EXISTS (SELECT 1 FROM message AS m
            WHERE m."group" = g."group" AND m.state = 'ready' AND m.key IS NULL AND NOT m.suspect)
    OR g.keyed AND EXISTS (
        SELECT 1 FROM message AS m
        WHERE m."group" = g."group" AND m.state = 'ready' AND m.key IS NOT NULL));

-- name: queue.claim
-- Claims messages of one group without a key, by priority and then by age.
UPDATE message SET
    state = 'claimed', owner = :owner, claim = :claim, attempts = attempts + 1
WHERE rowid IN (
    SELECT rowid FROM message INDEXED BY message_ready
    WHERE "group" = :group AND state = 'ready' AND key IS NULL AND NOT suspect
        AND priority BETWEEN :least AND :most
    ORDER BY priority DESC, position LIMIT :count);

-- name: queue.claimed
-- The messages of a claim.
SELECT m."group", m.event_id, m.position, m.key AS order_key, m.claim, m.attempts, m.history,
       m.suspect, e.type, e.key, e.priority, e.payload, e.headers, e.created_at
FROM message AS m INDEXED BY message_claimed CROSS JOIN event AS e ON e.position = m.position
WHERE m.owner = :owner AND m.claim = :claim AND m.state = 'claimed'
-- Within a key there is no priority.
ORDER BY m."group", m.key, iif(m.key IS NULL, m.priority, 0) DESC, m.position;

-- name: queue.lock_group
-- One process writes at a time.
SELECT 1 AS locked WHERE :group <> '';

-- name: queue.claim_keys
-- Walks from key to key after `after`, and claims the first `run` messages of each key whose first
-- message can be claimed.
WITH RECURSIVE head (key, found) AS (
    SELECT * FROM (
        SELECT m.key, m.next_at <= :now_us AND NOT m.suspect AND NOT EXISTS (
                   SELECT 1 FROM message AS c INDEXED BY message_key_claimed
                   WHERE c."group" = :group AND c.key = m.key AND c.key IS NOT NULL
                       AND c.state = 'claimed')
        FROM message AS m INDEXED BY message_key
        WHERE m.key IS NOT NULL AND m.state = 'ready' AND m."group" = :group
            AND (m.key, m.position) > (:after, :after_position)
        ORDER BY m.key, m.position LIMIT 1)
    UNION ALL
    SELECT n.key, head.found + (n.next_at <= :now_us AND NOT n.suspect AND NOT EXISTS (
               SELECT 1 FROM message AS c INDEXED BY message_key_claimed
               WHERE c."group" = :group AND c.key = n.key AND c.key IS NOT NULL
                   AND c.state = 'claimed'))
    FROM head CROSS JOIN message AS n ON n."group" = :group AND n.event_id = (
        SELECT m.event_id FROM message AS m INDEXED BY message_key
        WHERE m.key IS NOT NULL AND m.state = 'ready' AND m."group" = :group AND m.key > head.key
        ORDER BY m.key, m.position LIMIT 1)
    WHERE head.found < :count
)
UPDATE message SET
    state = 'claimed', owner = :owner, claim = :claim, attempts = attempts + 1
WHERE (event_id, "group") IN (
    SELECT r.event_id, :group FROM (SELECT DISTINCT key FROM head) AS k
    CROSS JOIN message AS r ON r."group" = :group AND r.event_id IN (
        SELECT f.event_id FROM (
            SELECT w.event_id, min(w.next_at <= :now_us AND NOT w.suspect)
                       OVER (ORDER BY w.position ROWS UNBOUNDED PRECEDING) AS goes
            FROM (SELECT event_id, position, next_at, suspect
                  FROM message INDEXED BY message_key
                  WHERE key IS NOT NULL AND state = 'ready' AND "group" = :group AND key = k.key
                  ORDER BY key, position LIMIT :run) AS w) AS f
        WHERE f.goes)
    WHERE NOT EXISTS (
        SELECT 1 FROM message AS c INDEXED BY message_key_claimed
        WHERE c."group" = :group AND c.key = k.key AND c.key IS NOT NULL AND c.state = 'claimed'));

-- name: queue.claim_suspect
-- Claims one suspect message, of any of the groups.
UPDATE message SET
    state = 'claimed', owner = :owner, claim = :claim, attempts = attempts + 1
WHERE (event_id, "group") IN (
    SELECT m.event_id, m."group" FROM message AS m INDEXED BY message_suspect
    WHERE m.state = 'ready' AND m.suspect AND m."group" IN :groups[text] AND m.next_at <= :now_us
        AND (m.key IS NULL OR NOT EXISTS (
            SELECT 1 FROM message AS c
            WHERE c."group" = m."group" AND c.key = m.key AND c.key IS NOT NULL
                AND (c.state = 'claimed' OR c.state = 'ready' AND c.position < m.position)))
    LIMIT 1);

-- name: queue.mark_done
-- `ids`: JSON list of event ids, all of one group and one claim.
INSERT INTO handled (event_id, "group", attempts, handled_at)
SELECT event_id, "group", attempts, :now_us FROM message
WHERE event_id IN :ids[text] AND "group" = :group AND claim = :claim AND state = 'claimed'
ON CONFLICT DO NOTHING;

-- name: queue.delete_done
DELETE FROM message
WHERE event_id IN :ids[text] AND "group" = :group AND claim = :claim AND state = 'claimed';
