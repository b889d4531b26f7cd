-- What the primary deletes, in small batches.

-- name: retention.idempotency
DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM idempotency WHERE created_at < :before ORDER BY created_at LIMIT :limit
    FOR UPDATE SKIP LOCKED));

-- name: retention.mail
DELETE FROM mail WHERE id = ANY (ARRAY(
    SELECT id FROM mail
    WHERE state IN ('sent', 'failed') AND created_at < :before ORDER BY created_at LIMIT :limit
    FOR UPDATE SKIP LOCKED));
