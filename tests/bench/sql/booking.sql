-- name: bench.find_customer
SELECT id, name FROM bench_customer WHERE email = :email LIMIT 1;

-- name: bench.find_reservation
SELECT r.id, r.customer_id, v.version, v.hash FROM bench_reservation AS r
JOIN bench_version AS v ON v.reservation_id = r.id
WHERE r.id = :id ORDER BY v.version DESC LIMIT 1;

-- name: bench.find_key
SELECT body_hash, response FROM idempotency WHERE scope = 'bench' AND key = :key;
