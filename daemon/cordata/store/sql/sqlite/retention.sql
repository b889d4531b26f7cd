-- What the primary deletes, in small batches.

-- name: retention.idempotency
DELETE FROM idempotency WHERE (scope, key) IN (
    SELECT scope, key FROM idempotency WHERE created_at < :before LIMIT :limit);

-- name: retention.mail
DELETE FROM mail WHERE id IN (
    SELECT id FROM mail
    WHERE state IN ('sent', 'failed') AND created_at < :before LIMIT :limit);
