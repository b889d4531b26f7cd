-- Statements for PostgreSQL only; those for both stores are in ../retention.sql.

-- name: retention_empty_inbox
UPDATE inbox SET body = ''::bytea, headers = '{}'
WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
    AND state IN ('mapped', 'rejected')

-- name: retention_expire_reviews
UPDATE inbox SET state = 'rejected', error = 'nobody mapped it in time (review_days)',
    handled_at = :now, body = ''::bytea, headers = '{}'
WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
    AND state = 'review'

-- name: retention_lock_old
-- newest
-- A submission that changes one of these meanwhile waits, and finds that it is gone.
SELECT r.id, v.data FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.id IN (SELECT value FROM json_array_elements_text(:ids::json))
    AND r.changed_at < :before AND NOT EXISTS (
        SELECT 1 FROM deliverable d WHERE d.reservation_id = r.id)
ORDER BY r.id
FOR UPDATE OF r
