-- What the units of test_settings.py are made of.

-- name: kv.get
SELECT v FROM kv WHERE k = :k;

-- name: kv.add
INSERT INTO kv (k, v) VALUES (:k, :v);

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
