

-- name: ledger.add
INSERT INTO balance (stream, total, count) VALUES (:stream, :amount, 1)
ON CONFLICT (stream) DO UPDATE SET total = balance.total + excluded.total, count = balance.count + 1;

-- name: ledger.note
INSERT INTO note (position, stream, version, owner, at)
VALUES (:position, :stream, :version, :owner, :at);

-- name: ledger.balances
SELECT stream, total, count FROM balance ORDER BY stream;

-- name: ledger.handled
SELECT id, position, stream, version, owner, at FROM note ORDER BY id;

-- name: ledger.count
SELECT count(*) AS count FROM note;

-- name: ledger.clear
DELETE FROM balance;

-- name: ledger.clear_notes
DELETE FROM note;

-- name: ledger.partitions
SELECT subscription, partition, position, term, owner, failing, attempts, next_at, history,
       blocked_at
FROM subscription_partition ORDER BY subscription, partition;

-- name: ledger.workers
SELECT id FROM process ORDER BY id;

-- name: ledger.expire
UPDATE process SET expires_at = 1 WHERE id = :owner;
