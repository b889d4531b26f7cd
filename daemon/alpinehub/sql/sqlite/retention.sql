-- Statements for SQLite only; those for both stores are in ../retention.sql.

-- name: retention_empty_inbox
UPDATE inbox SET body = x'', headers = '{}'
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state IN ('mapped', 'rejected')

-- name: retention_expire_reviews
UPDATE inbox SET state = 'rejected', error = 'nobody mapped it in time (review_days)',
    handled_at = :now, body = x'', headers = '{}'
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state = 'review'

-- name: retention_lock_old
-- A submission that changes one of these meanwhile waits, and finds that it is gone.
SELECT r.id, v.data FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.id IN (SELECT value FROM json_each(:ids))
    AND r.changed_at < :before AND NOT EXISTS (
        SELECT 1 FROM deliverable d WHERE d.reservation_id = r.id)
ORDER BY r.id
