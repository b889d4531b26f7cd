-- Of PostgreSQL alone; what both stores run is in ../customers.sql.

-- name: customer_range
-- The last of the next customers.
SELECT max(id) AS last, min(created_at) AS oldest
FROM (SELECT id, created_at FROM customer WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: customer_lock_due
-- To read their numbers; a row that is locked is left out.
SELECT c.id, c.hotel_id, h.region, c.phone, c.country, c.phone_e164
FROM customer c JOIN hotel h ON h.id = c.hotel_id
WHERE c.id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json)) AND c.phone_due = 1
ORDER BY c.id
FOR UPDATE OF c SKIP LOCKED

-- name: customer_shared
-- :numbers is [[hotel, number], ...]. Those that several have of whom one gave no e-mail address.
SELECT c.hotel_id, c.phone_e164, count(c.email) AS owners,
    min(c.id) FILTER (WHERE c.email IS NOT NULL) AS owner
FROM json_array_elements(:numbers::json) AS j (value)
JOIN customer c ON c.hotel_id = (j.value ->> 0)::bigint AND c.phone_e164 = j.value ->> 1
GROUP BY c.hotel_id, c.phone_e164 HAVING count(*) > 1 AND count(*) > count(c.email)
ORDER BY c.hotel_id, c.phone_e164

-- name: customer_nameless
-- Who gave that number and no e-mail address, and the one who gave both.
SELECT id, email, phone, first_name, last_name, city, postal_code, country, state, birth_date,
    gender, language, consent, consent_at
FROM customer
WHERE hotel_id = :hotel_id AND phone_e164 = :phone_e164 AND (email IS NULL OR id = :owner)
ORDER BY id
FOR UPDATE

-- name: customer_move_requests
UPDATE reservation SET customer_id = :id
WHERE customer_id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))

-- name: customer_delete
DELETE FROM customer WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))

-- name: customer_not_due
UPDATE customer SET phone_due = 0
WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))

-- name: customer_ids_by_number
-- :numbers is [[hotel, E.164 or null, as written], ...].
SELECT c.id FROM json_array_elements(:numbers::json) AS j (value)
JOIN customer c ON c.hotel_id = (j.value ->> 0)::bigint AND c.phone_e164 = j.value ->> 1
UNION
SELECT c.id FROM json_array_elements(:numbers::json) AS j (value)
JOIN customer c ON c.hotel_id = (j.value ->> 0)::bigint AND c.phone = j.value ->> 2

-- name: customer_ids_by_name
-- The only one that looks at all of them.
SELECT id FROM customer
WHERE first_name ILIKE :pattern ESCAPE '\' OR last_name ILIKE :pattern ESCAPE '\'
ORDER BY id DESC LIMIT :limit

-- name: customer_read
SELECT c.id, h.code AS hotel, c.hotel_id, h.region, c.email, c.phone, c.phone_e164, c.first_name,
    c.last_name, c.city, c.postal_code, c.country, c.state, c.birth_date, c.gender, c.language,
    c.consent, c.consent_at, c.created_at, c.phone_due,
    (SELECT count(*) FROM reservation r WHERE r.customer_id = c.id) AS requests,
    (SELECT max(r.changed_at) FROM reservation r WHERE r.customer_id = c.id) AS last_request_at
FROM customer c JOIN hotel h ON h.id = c.hotel_id
WHERE c.id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
ORDER BY c.id

-- name: customer_requests
SELECT r.id, s.name AS source, r.external_id, r.status, r.created_at, r.changed_at, r.hotel_status,
    r.hotel_status_at
FROM reservation r JOIN source s ON s.id = r.source_id
WHERE r.customer_id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
ORDER BY r.id

-- name: customer_versions
SELECT reservation_id, version, res_status, created_at, request_id, data FROM reservation_version
WHERE reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))
ORDER BY reservation_id, version

-- name: customer_versions_at
-- :ids is [[reservation, version], ...].
SELECT v.reservation_id, v.version, v.res_status, v.created_at, v.request_id, v.data
FROM json_array_elements(:ids::json) AS j (value)
JOIN reservation_version v ON v.reservation_id = j.value ->> 0
    AND v.version = (j.value ->> 1)::bigint
ORDER BY v.reservation_id, v.version

-- name: customer_deliveries
SELECT d.reservation_id, d.version, u.name AS account, d.client_id, d.first_sent_at, d.last_sent_at,
    d.acked_at, d.rejected_text
FROM delivery d JOIN account u ON u.id = d.account_id
WHERE d.reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))
ORDER BY d.reservation_id, d.version, u.name

-- name: customer_events
SELECT e.id, e.reservation_id, e.version, e.event, u.name AS account, e.at, e.request_id, e.detail
FROM reservation_history e LEFT JOIN account u ON u.id = e.account_id
WHERE e.reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))
ORDER BY e.id

-- name: customer_inbox
SELECT id, reservation_id, received_at, state, request_id, headers, body FROM inbox
WHERE reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))
ORDER BY id

-- name: customer_inbox_at
SELECT id, received_at, state, request_id, headers, body FROM inbox
WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
ORDER BY id

-- name: customer_inbox_range
SELECT max(id) AS last, min(received_at) AS oldest
FROM (SELECT id, received_at FROM inbox WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: customer_version_range
SELECT max(id) AS last
FROM (SELECT id FROM reservation_version WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: customer_waiting
-- Requests that an account can still be given, each once.
SELECT count(DISTINCT r.id) AS waiting FROM deliverable d JOIN reservation r ON r.id = d.reservation_id
WHERE r.customer_id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))

-- name: customer_hold_requests
SELECT id, version, external_id,
    (SELECT kind FROM source s WHERE s.id = reservation.source_id) AS kind
FROM reservation
WHERE customer_id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))
ORDER BY id LIMIT :limit
FOR UPDATE

-- name: customer_clear_inbox
-- What was not interpreted yet never will be.
UPDATE inbox SET body = ''::bytea, headers = '{}', external_id = NULL, error = NULL,
    state = CASE WHEN state IN ('received', 'review') THEN 'rejected' ELSE state END,
    outcome = CASE WHEN state IN ('received', 'review') THEN 'erased' ELSE outcome END
WHERE id IN (SELECT value::bigint FROM json_array_elements_text(:ids::json))

-- name: customer_clear_refusals
-- That they were refused stays.
UPDATE delivery SET rejected_text = ''
WHERE reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json))
    AND rejected_text IS NOT NULL

-- name: customer_end_waiting
UPDATE delivery SET waiting = 0, cancelled_at = :now
WHERE reservation_id IN (SELECT value FROM json_array_elements_text(:ids::json)) AND waiting = 1
