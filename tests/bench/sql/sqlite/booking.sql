-- name: bench.inbox
INSERT INTO bench_inbox (id, at, body) VALUES (:id, :at, :body);

-- name: bench.customer
INSERT INTO bench_customer (id, name, email) VALUES (:id, :name, :email);

-- name: bench.reservation
INSERT INTO bench_reservation (id, customer_id, at) VALUES (:id, :customer_id, :at);

-- name: bench.version
INSERT INTO bench_version (reservation_id, version, hash, data, at)
VALUES (:id, 1, :hash, :data, :at);

-- name: bench.key
INSERT INTO idempotency (scope, key, body_hash, response, created_at)
VALUES ('bench', :key, '', :response, :at);

-- name: bench.many
-- Some rows after some work, as a report reads them.
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000)
SELECT x, 'row ' || x AS text FROM n WHERE x % 25 = 0;
