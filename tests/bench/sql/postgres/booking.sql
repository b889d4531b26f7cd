-- name: bench.inbox
INSERT INTO bench_inbox (id, at, body) VALUES (:id, :at, :body);

-- name: bench.find_customer
SELECT id, name FROM bench_customer WHERE email = :email LIMIT 1;

-- name: bench.customer
INSERT INTO bench_customer (id, name, email) VALUES (:id, :name, :email);

-- name: bench.new_customer
INSERT INTO bench_customer (id, name, email) VALUES (:id, :name, :email) RETURNING id;

-- name: bench.find_reservation
SELECT r.id, r.customer_id, v.version, v.hash FROM bench_reservation AS r
JOIN bench_version AS v ON v.reservation_id = r.id
WHERE r.id = :id ORDER BY v.version DESC LIMIT 1;

-- name: bench.reservation
INSERT INTO bench_reservation (id, customer_id, at) VALUES (:id, :customer_id, :at);

-- name: bench.version
INSERT INTO bench_version (reservation_id, version, hash, data, at)
VALUES (:id, 1, :hash, :data, :at);

-- name: bench.find_key
SELECT body_hash, response FROM idempotency WHERE scope = 'bench' AND key = :key;

-- name: bench.key
INSERT INTO idempotency (scope, key, body_hash, response, created_at)
VALUES ('bench', :key, '', :response, :at);

-- name: bench.many
-- Some rows after some work, as a report reads them.
SELECT x, 'row ' || x AS text FROM generate_series(1, 50000) AS n (x) WHERE x % 25 = 0;
