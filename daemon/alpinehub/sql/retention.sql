-- Deletes old data (retention.py): windows of a table, the old rows in them, their deletion.

-- name: retention_hotels
SELECT id, settings FROM hotel

-- name: retention_old_inbox
-- Submissions that wait for a person are not deleted here.
SELECT i.id, s.hotel_id, i.received_at AS at FROM inbox i JOIN source s ON s.id = i.source_id
WHERE i.id > :after AND i.id <= :last AND i.received_at < :before AND length(i.body) > 0
    AND i.state IN ('mapped', 'rejected')
ORDER BY i.id

-- name: retention_review_range
-- The range of submissions that wait for a person: few, by their index.
SELECT max(id) AS last, min(received_at) AS oldest
FROM (SELECT id, received_at FROM inbox
      WHERE state = 'review' AND id > :after
      ORDER BY id LIMIT :limit)
    AS next

-- name: retention_old_reviews
SELECT i.id, s.hotel_id, h.code AS hotel, i.received_at AS at
FROM inbox i JOIN source s ON s.id = i.source_id JOIN hotel h ON h.id = s.hotel_id
WHERE i.state = 'review'
    AND i.id > :after AND i.id <= :last AND i.received_at < :before
ORDER BY i.id

-- name: retention_event_range
SELECT max(id) AS last, min(at) AS oldest
FROM (SELECT id, at FROM reservation_event WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: retention_old_events
-- hotel_id NULL: the event was written after its reservation was deleted.
SELECT e.id, r.hotel_id, e.at
FROM reservation_event e LEFT JOIN reservation r ON r.id = e.reservation_id
WHERE e.id > :after AND e.id <= :last AND e.at < :before
ORDER BY e.id

-- name: retention_delete_events
DELETE FROM reservation_event
WHERE id IN :ids[bigint]

-- name: retention_inbound_range
SELECT max(id) AS last, min(received_at) AS oldest
FROM (SELECT id, received_at FROM inbound_message WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: retention_old_inbound
SELECT id, hotel_id, received_at AS at FROM inbound_message
WHERE id > :after AND id <= :last AND received_at < :before
ORDER BY id

-- name: retention_delete_inbound
DELETE FROM inbound_message WHERE id IN :ids[bigint]

-- name: retention_request_range
-- Their ids begin with the time.
SELECT max(id) AS last, min(created_at) AS oldest
FROM (SELECT id, created_at FROM reservation WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: retention_old_requests
SELECT r.id, r.hotel_id, r.changed_at AS at FROM reservation r
WHERE r.id > :after AND r.id <= :last AND r.changed_at < :before AND NOT EXISTS (
    SELECT 1 FROM deliverable d WHERE d.reservation_id = r.id)
ORDER BY r.id

-- name: retention_delete_deliveries_of
DELETE FROM delivery
WHERE reservation_id IN :ids[text]

-- name: retention_delete_events_of
DELETE FROM reservation_event
WHERE reservation_id IN :ids[text]

-- name: retention_delete_inbox_of
DELETE FROM inbox
WHERE reservation_id IN :ids[text]

-- name: retention_delete_versions_of
DELETE FROM reservation_version
WHERE reservation_id IN :ids[text]

-- name: retention_delete_requests
DELETE FROM reservation WHERE id IN :ids[text]

-- name: retention_old_customers
-- at: of the customer's last request, or of the customer's creation.
SELECT c.id, c.hotel_id, coalesce(
    (SELECT max(r.changed_at) FROM reservation r WHERE r.customer_id = c.id), c.created_at) AS at
FROM customer c
WHERE c.id > :after AND c.id <= :last AND c.created_at < :before AND NOT EXISTS (
    SELECT 1 FROM reservation r JOIN deliverable d ON d.reservation_id = r.id
    WHERE r.customer_id = c.id)
ORDER BY c.id

-- name: retention_stays
SELECT r.customer_id, v.data FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.customer_id IN :ids[bigint]

-- name: retention_empty_inbox
-- :empty is a body of no bytes.
UPDATE inbox SET body = :empty, headers = '{}'
WHERE id IN :ids[bigint] AND state IN ('mapped', 'rejected')

-- name: retention_expire_reviews
UPDATE inbox SET state = 'rejected', error = 'nobody mapped it in time (review_days)',
    handled_at = :now, body = :empty, headers = '{}'
WHERE id IN :ids[bigint] AND state = 'review'

-- name: retention_requests_to_delete
-- Locked by its caller: a submission that changes one of these meanwhile waits, and finds that it is
-- gone.
SELECT r.id, v.data FROM reservation r
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.id IN :ids[text] AND r.changed_at < :before AND NOT EXISTS (
    SELECT 1 FROM deliverable d WHERE d.reservation_id = r.id)
ORDER BY r.id
