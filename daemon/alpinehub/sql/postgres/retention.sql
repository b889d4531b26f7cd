-- Of PostgreSQL alone; what both stores run is in ../retention.sql.

-- name: retention_empty_inbox
UPDATE inbox SET body = ''::bytea, headers = '{}'
WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
    AND state IN ('mapped', 'rejected')

-- name: retention_review_range
-- Of the few that wait for a person, by their index.
SELECT max(id) AS last, min(received_at) AS oldest
FROM (SELECT id, received_at FROM inbox
      WHERE state IN ('received', 'review') AND state = 'review' AND id > :after
      ORDER BY id LIMIT :limit)
    AS next

-- name: retention_expire_reviews
UPDATE inbox SET state = 'rejected', error = 'nobody mapped it in time (review_days)',
    handled_at = :now, body = ''::bytea, headers = '{}'
WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
    AND state = 'review'

-- name: retention_event_range
SELECT max(id) AS last, min(at) AS oldest
FROM (SELECT id, at FROM reservation_history WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: retention_delete_events
DELETE FROM reservation_history
WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))

-- name: retention_push_range
SELECT max(id) AS last, min(received_at) AS oldest
FROM (SELECT id, received_at FROM inbound_message WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: retention_delete_pushes
DELETE FROM inbound_message WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))

-- name: retention_request_range
-- Their ids begin with the time.
SELECT max(id) AS last, min(created_at) AS oldest
FROM (SELECT id, created_at FROM reservation WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: retention_hold_old
-- A source that changes one meanwhile waits, and finds that it is gone.
SELECT r.id, v.data FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.id IN (SELECT value FROM json_array_elements_text(:ids::json))
    AND r.changed_at < :before AND NOT EXISTS (
        SELECT 1 FROM deliverable d WHERE d.reservation_id = r.id)
ORDER BY r.id
FOR UPDATE OF r

-- name: retention_delete_deliveries_of
DELETE FROM delivery
WHERE reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: retention_delete_events_of
DELETE FROM reservation_history
WHERE reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: retention_delete_inbox_of
DELETE FROM inbox
WHERE reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: retention_delete_versions_of
DELETE FROM reservation_version
WHERE reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: retention_delete_requests
DELETE FROM reservation WHERE id IN (SELECT value FROM json_array_elements_text(:ids::json))

-- name: retention_stays
SELECT r.customer_id, v.data FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.customer_id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
