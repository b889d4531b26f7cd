-- Statements for PostgreSQL only; those for both stores are in ../queue.sql.
--
-- Rows are looked up by index and changed by ctid, whatever the statistics say: a plan that was made
-- while the table was small would read all of it when it has grown.
--
-- `-- newest`: the statement locks, so it must see the newest rows (see docs/develop/transactions.md).

-- name: queue.publish
WITH e AS (
    INSERT INTO event (id, type, key, priority, payload, headers, due_at, created_at)
    VALUES :row(event_id, type, key, priority, payload, headers, due_at, created_at)
    RETURNING id, type, key, position, priority, due_at, created_at
)
INSERT INTO message (event_id, "group", position, key, priority, state, next_at)
SELECT e.id, g."group", e.position, CASE WHEN g.keyed THEN e.key END, e.priority,
       CASE WHEN e.due_at > e.created_at THEN 'scheduled' ELSE 'ready' END, e.due_at
FROM e JOIN consumer_group AS g ON g.type IN (e.type, '*') AND g.broker = 'store'
    AND (g.type <> '*' OR EXISTS (
        SELECT 1 FROM consumer_group AS r WHERE r.type = e.type AND r.broker = 'redis'));

-- name: queue.last_position
-- newest
-- The highest position given so far, also to transactions that are not committed yet.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS position,
       pg_current_xact_id()::xid::text AS xid
FROM event_position_seq;

-- name: queue.older_writers
-- Transactions that may not see what was committed before the transaction `xid` began: those with an
-- older snapshot, and those that began to write before. Of the latter, one that is READ COMMITTED has
-- no snapshot between its statements and while it commits. greatest() leaves out NULL.
SELECT count(*) AS count FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend'
    AND greatest(age(backend_xmin), age(backend_xid)) >= age(:xid::text::xid);

-- name: queue.promote
-- newest
UPDATE message SET state = 'ready' WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM message
    WHERE state = 'scheduled' AND next_at <= :now_us ORDER BY next_at LIMIT :limit
    FOR UPDATE SKIP LOCKED));

-- name: queue.claim_all
-- newest
-- Claims messages without a key, by priority and then by age. `limits`: JSON list. Each row also has
-- the result of queue.next, and those of the groups `keyed` that have a message with a key to claim (a
-- JSON list, or NULL), which saves two round trips; there is at least one row, whose event_id may be
-- NULL.
WITH claimed AS (
    UPDATE message SET
        state = 'claimed', owner = :owner, claim = :claim, attempts = attempts + 1
    WHERE ctid = ANY (ARRAY(
        SELECT m.ctid
        FROM json_to_recordset(:limits::json)
            AS w ("group" text, least integer, most integer, count integer)
        CROSS JOIN LATERAL (
            SELECT ctid FROM message
            WHERE "group" = w."group" AND state = 'ready' AND key IS NULL AND NOT suspect
                AND priority BETWEEN w.least AND w.most
            ORDER BY "group", priority DESC, position LIMIT w.count
            FOR UPDATE SKIP LOCKED) AS m))
    RETURNING "group", event_id, position, key, claim, attempts, history, suspect
), found AS (
    SELECT m."group", m.event_id, m.position, m.key AS order_key, m.claim, m.attempts, m.history,
           m.suspect, e.type, e.key, e.priority, e.payload, e.headers, e.created_at
    FROM claimed AS m CROSS JOIN LATERAL (
        SELECT * FROM event WHERE id >= m.event_id ORDER BY id LIMIT 1) AS e
    WHERE e.id = m.event_id
)
SELECT f.*,
       (SELECT next_at FROM message WHERE state = 'scheduled' ORDER BY next_at LIMIT 1) AS next_at,
       EXISTS (SELECT 1 FROM message AS m
               WHERE m.state = 'ready' AND m.suspect AND m."group" IN :groups[text]
                   AND m.next_at <= :now_us
                   AND (m.key IS NULL OR NOT EXISTS (
                       SELECT 1 FROM message AS c
                       WHERE c."group" = m."group" AND c.key = m.key AND c.key IS NOT NULL AND (
                           c.state = 'claimed' OR c.state = 'ready' AND c.position < m.position)))
              ) AS suspects,
       (SELECT json_agg(g.name) FROM json_array_elements_text(:keyed::json) AS g (name)
        CROSS JOIN LATERAL (  -- one look for each; for EXISTS, a kept plan read all that are ready
            SELECT 1 FROM message AS m
            WHERE m."group" = g.name AND m.state = 'ready' AND m.key IS NOT NULL
            ORDER BY m."group", m.key, m.position LIMIT 1) AS first
       )::text AS keyed
FROM (SELECT 1) AS always LEFT JOIN found AS f ON true
ORDER BY f."group", f.priority DESC, f.position;

-- name: queue.lock_group
-- newest
-- One process at a time claims messages of a keyed group.
SELECT pg_advisory_xact_lock(hashtextextended('queue ' || :group, 0)) AS locked;

-- name: queue.claim_keys
-- newest
-- Walks from key to key after `after`, and claims the first `run` messages of each key whose first
-- message can be claimed.
WITH RECURSIVE head AS (
    (SELECT m.key, (m.next_at <= :now_us AND NOT m.suspect AND NOT EXISTS (
                SELECT 1 FROM message AS c WHERE c."group" = m."group" AND c.key = m.key
                    AND c.key IS NOT NULL AND c.state = 'claimed'))::integer AS found
     FROM message AS m
     WHERE m.key IS NOT NULL AND m.state = 'ready' AND m."group" = :group
         AND (m.key, m.position) > (:after, :after_position::bigint)
     ORDER BY m."group", m.key, m.position LIMIT 1)
    UNION ALL
    SELECT n.key, head.found + (n.next_at <= :now_us AND NOT n.suspect AND NOT EXISTS (
               SELECT 1 FROM message AS c WHERE c."group" = :group AND c.key = n.key
                   AND c.key IS NOT NULL AND c.state = 'claimed'))::integer
    FROM head CROSS JOIN LATERAL (
        SELECT m.key, m.next_at, m.suspect FROM message AS m
        WHERE m.key IS NOT NULL AND m.state = 'ready' AND m."group" = :group AND m.key > head.key
        ORDER BY m."group", m.key, m.position LIMIT 1) AS n
    WHERE head.found < :count::integer
), claimed AS (
    UPDATE message SET
        state = 'claimed', owner = :owner, claim = :claim, attempts = attempts + 1
    WHERE ctid = ANY (ARRAY(
        SELECT f.ctid FROM head
        CROSS JOIN LATERAL (
            SELECT w.ctid, bool_and(w.next_at <= :now_us AND NOT w.suspect)
                               OVER (ORDER BY w.position ROWS UNBOUNDED PRECEDING) AS goes
            FROM (SELECT ctid, position, next_at, suspect FROM message
                  WHERE key IS NOT NULL AND state = 'ready' AND "group" = :group
                      AND key = head.key
                  ORDER BY "group", key, position LIMIT :run::integer) AS w) AS f
        WHERE f.goes AND NOT EXISTS (
            SELECT 1 FROM message AS c WHERE c."group" = :group AND c.key = head.key
                AND c.key IS NOT NULL AND c.state = 'claimed')))
    RETURNING "group", event_id, position, key, claim, attempts, history, suspect
)
SELECT m."group", m.event_id, m.position, m.key AS order_key, m.claim, m.attempts, m.history,
       m.suspect, e.type, e.key, e.priority, e.payload, e.headers, e.created_at
FROM claimed AS m CROSS JOIN LATERAL (
    SELECT * FROM event WHERE id >= m.event_id ORDER BY id LIMIT 1) AS e
WHERE e.id = m.event_id
ORDER BY m.key, m.position;

-- name: queue.claim_suspect
-- newest
-- Claims one suspect message, of any of the groups.
WITH claimed AS (
    UPDATE message SET
        state = 'claimed', owner = :owner, claim = :claim, attempts = attempts + 1
    WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message AS m
        WHERE m.state = 'ready' AND m.suspect AND m."group" IN :groups[text]
            AND m.next_at <= :now_us
            AND (m.key IS NULL OR NOT EXISTS (
                SELECT 1 FROM message AS c
                WHERE c."group" = m."group" AND c.key = m.key AND c.key IS NOT NULL
                    AND (c.state = 'claimed' OR c.state = 'ready' AND c.position < m.position)))
        LIMIT 1 FOR UPDATE SKIP LOCKED))
    RETURNING "group", event_id, position, key, claim, attempts, history, suspect
)
SELECT m."group", m.event_id, m.position, m.key AS order_key, m.claim, m.attempts, m.history,
       m.suspect, e.type, e.key, e.priority, e.payload, e.headers, e.created_at
FROM claimed AS m CROSS JOIN LATERAL (
    SELECT * FROM event WHERE id >= m.event_id ORDER BY id LIMIT 1) AS e
WHERE e.id = m.event_id;

-- name: queue.done
-- `settled`: JSON list of objects.
WITH gone AS (
    DELETE FROM message WHERE state = 'claimed' AND ctid = ANY (ARRAY(
        SELECT m.ctid
        FROM json_to_recordset(:settled::json) AS r (event_id text, "group" text, claim bigint)
        CROSS JOIN LATERAL (
            SELECT ctid, event_id, "group", claim FROM message
            WHERE (event_id, "group") >= (r.event_id, r."group")
            ORDER BY event_id, "group" LIMIT 1) AS m
        WHERE m.event_id = r.event_id AND m."group" = r."group" AND m.claim = r.claim))
    RETURNING event_id, "group", attempts
)
INSERT INTO handled (event_id, "group", attempts, handled_at)
SELECT event_id, "group", attempts, :now_us::bigint FROM gone ON CONFLICT DO NOTHING;
