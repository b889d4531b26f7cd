-- Processes that claim messages or partitions: each has a row, its process lease.

-- name: process.get
SELECT id, expires_at FROM process WHERE id = :id;

-- name: process.join
INSERT INTO process (id, host, boot, pid, start, subscriptions, expires_at)
VALUES (:id, :host, :boot, :pid, :start, :subscriptions, :expires_at);

-- name: process.renew
UPDATE process SET expires_at = :expires_at, subscriptions = :subscriptions WHERE id = :id;

-- name: process.leave
DELETE FROM process WHERE id = :id;

-- name: process.all
SELECT id, host, boot, pid, start, subscriptions, expires_at FROM process ORDER BY id;
