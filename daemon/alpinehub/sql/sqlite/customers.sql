-- Of SQLite alone; what both stores run is in ../customers.sql.

-- name: customer_set_numbers
-- :numbers is [[customer, E.164 or null, number, country and region that it was made of], ...].
-- A customer of whom one of these has changed meanwhile stays due.
UPDATE customer SET phone_e164 = j.value ->> 1, phone_due = 0
FROM json_each(:numbers) AS j
WHERE customer.id = j.value ->> 0 AND phone IS j.value ->> 2 AND country IS j.value ->> 3
    AND (SELECT region FROM hotel WHERE id = hotel_id) = j.value ->> 4

-- name: customer_shared
-- :numbers is [[hotel, number], ...]. Numbers that several customers have, one of them without an e-mail address.
SELECT c.hotel_id, c.phone_e164, count(c.email) AS owners,
    min(c.id) FILTER (WHERE c.email IS NOT NULL) AS owner
FROM json_each(:numbers) j
JOIN customer c ON c.hotel_id = j.value ->> 0 AND c.phone_e164 = j.value ->> 1
GROUP BY c.hotel_id, c.phone_e164 HAVING count(*) > 1 AND count(*) > count(c.email)

-- name: customer_nameless
-- Who gave that number and no e-mail address, and the one who gave both.
SELECT id, email, phone, first_name, last_name, city, postal_code, country, state, birth_date,
    gender, language, consent, consent_at
FROM customer
WHERE hotel_id = :hotel_id AND phone_e164 = :phone_e164 AND (email IS NULL OR id = :owner)
ORDER BY id

-- name: customer_ids_by_number
-- :numbers is [[hotel, E.164 or null, as written], ...].
SELECT c.id FROM json_each(:numbers) j
JOIN customer c ON c.hotel_id = j.value ->> 0 AND c.phone_e164 = j.value ->> 1
UNION
SELECT c.id FROM json_each(:numbers) j
JOIN customer c ON c.hotel_id = j.value ->> 0 AND c.phone = j.value ->> 2

-- name: customer_ids_by_name
-- The only one that looks at all of them.
SELECT id FROM customer
WHERE first_name LIKE :pattern ESCAPE '\' OR last_name LIKE :pattern ESCAPE '\'
ORDER BY id DESC LIMIT :limit

-- name: customer_versions_at
-- :ids is [[reservation, version], ...].
SELECT v.reservation_id, v.version, v.res_status, v.created_at, v.request_id, v.data
FROM json_each(:ids) j
JOIN reservation_version v ON v.reservation_id = j.value ->> 0 AND v.version = j.value ->> 1
ORDER BY v.reservation_id, v.version

-- name: customer_hold_requests
SELECT id, version, external_id,
    (SELECT kind FROM source s WHERE s.id = reservation.source_id) AS kind
FROM reservation
WHERE customer_id IN (SELECT value FROM json_each(:ids))
ORDER BY id LIMIT :limit

-- name: customer_clear_inbox
-- What was not interpreted yet never will be.
UPDATE inbox SET body = x'', headers = '{}', external_id = NULL, error = NULL,
    state = CASE WHEN state IN ('received', 'review') THEN 'rejected' ELSE state END,
    outcome = CASE WHEN state IN ('received', 'review') THEN 'erased' ELSE outcome END
WHERE id IN (SELECT value FROM json_each(:ids))
