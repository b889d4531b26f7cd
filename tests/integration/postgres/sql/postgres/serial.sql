-- What the units of test_batch_serial.py are made of.

-- name: kv.get
SELECT v FROM kv WHERE k = :k;

-- name: kv.range
SELECT k, v FROM kv WHERE v >= :least ORDER BY v DESC, k LIMIT :limit;

-- name: kv.all
SELECT k, v FROM kv ORDER BY k;

-- name: kv.hold
-- newest
SELECT v FROM kv WHERE k = :k FOR UPDATE;

-- name: kv.share
-- newest
SELECT v FROM kv WHERE k = :k FOR SHARE;

-- name: kv.divide
SELECT :v::bigint / :by::bigint AS v;

-- name: kv.add
INSERT INTO kv (k, v) VALUES (:k, :v);

-- name: kv.add_returning
INSERT INTO kv (k, v) VALUES (:k, :v) RETURNING k, v + 1 AS next;

-- name: kv.offer
INSERT INTO kv (k, v) VALUES (:k, :v) ON CONFLICT DO NOTHING;

-- name: kv.put
INSERT INTO kv (k, v) VALUES (:k, :v) ON CONFLICT (k) DO UPDATE SET v = excluded.v;

-- name: kv.count
INSERT INTO kv (k, v) VALUES (:k, :by) ON CONFLICT (k) DO UPDATE SET v = kv.v + excluded.v
RETURNING v;

-- name: kv.set
UPDATE kv SET v = :v WHERE k = :k;

-- name: kv.more
UPDATE kv SET v = v + :by WHERE k = :k;

-- name: kv.take
UPDATE kv SET v = v - :by WHERE k = :k AND v >= :by RETURNING v;

-- name: kv.raise_all
UPDATE kv SET v = v + :by;

-- name: kv.drop
DELETE FROM kv WHERE k = :k;

-- name: kv.sweep
-- By a value and not by a key: which rows that are nobody can tell beforehand.
DELETE FROM kv WHERE v < :below;

-- name: note.add
INSERT INTO note (who, k, text) VALUES (:who, :k, :text);

-- name: note.copy
-- Sees the other table.
INSERT INTO note (who, k, text) SELECT :who, k, v::text FROM kv WHERE v >= :least;

-- name: note.mark
-- Of the notes of one key, whoever wrote them.
UPDATE note SET text = text || :text WHERE k = :k;

-- name: note.all
SELECT who, k, text FROM note ORDER BY id;

-- name: serial.clear
TRUNCATE kv, note;

-- name: setting
SELECT current_setting(:name) AS value;

-- name: kept
-- Whether the server keeps the plan of a statement for this session.
SELECT count(*) AS count FROM pg_prepared_statements WHERE statement = :statement;

-- name: kv.look
-- plan: kept
SELECT v, current_setting('enable_seqscan') AS seqscan FROM kv WHERE k = :k;

-- name: plans
-- How often a statement was run by a plan that is kept, and the setting that a read leaves behind.
SELECT coalesce(sum(generic_plans), 0) AS kept, current_setting('enable_seqscan') AS seqscan
FROM pg_prepared_statements WHERE statement = :statement;
