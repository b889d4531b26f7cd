-- Customers: to find, change, merge, export and erase them (customers/).

-- name: customer_find
-- fits 1: the same e-mail address. 2: the same number, and no known address, since a
-- telephone is shared more often than a mailbox; not if a customer with an address has the number, for
-- it may be any of them. 3: no known address, and a number that may be the same, written differently.
SELECT 1 AS fits, id, email, phone, first_name, last_name, city, postal_code, country, state,
    birth_date, gender, language, consent
FROM customer WHERE hotel_id = :hotel_id AND email = :email
UNION ALL
SELECT * FROM (
    -- Customers with an address first: those decide both cases.
    SELECT 2, id, email, phone, first_name, last_name, city, postal_code, country, state,
        birth_date, gender, language, consent
    FROM customer WHERE hotel_id = :hotel_id AND phone_tail = :phone_tail AND phone = :phone
    ORDER BY email DESC NULLS LAST LIMIT 1
) AS of_number WHERE email IS NULL
UNION ALL
SELECT * FROM (
    SELECT 3, id, email, phone, first_name, last_name, city, postal_code, country, state,
        birth_date, gender, language, consent
    FROM customer WHERE hotel_id = :hotel_id AND phone_tail = :phone_tail AND email IS NULL
    LIMIT 1
) AS of_tail

-- name: customer_find_by_phone
-- Customers without an e-mail address first. If two rows have one, the customer is ambiguous.
SELECT id, email, phone, first_name, last_name, city, postal_code, country, state, birth_date,
    gender, language, consent
FROM customer WHERE hotel_id = :hotel_id AND phone_tail = :phone_tail AND phone = :phone
ORDER BY email NULLS FIRST LIMIT 2

-- name: customer_create
-- No row: another unit of work has created this customer meanwhile.
INSERT INTO customer (hotel_id,
    email, phone, first_name, last_name, city, postal_code, country, state, birth_date, gender,
    language, consent, consent_at, phone_due, created_at)
VALUES (:hotel_id,
    :email, :phone, :first_name, :last_name, :city, :postal_code, :country, :state, :birth_date,
    :gender, :language, :consent, :consent_at, :phone_due, :created_at)
ON CONFLICT DO NOTHING
RETURNING id

-- name: customer_update
-- New data of a customer; NULL: not changed, '': removed. The consent stays if it was given or refused
-- between :received_at and :now: while the submission waited in the review list.
UPDATE customer SET
    email = coalesce(:email, email),
    phone = coalesce(:phone, phone),
    first_name = nullif(coalesce(:first_name, first_name), ''),
    last_name = nullif(coalesce(:last_name, last_name), ''),
    city = nullif(coalesce(:city, city), ''),
    postal_code = nullif(coalesce(:postal_code, postal_code), ''),
    country = nullif(coalesce(:country, country), ''),
    state = nullif(coalesce(:state, state), ''),
    birth_date = nullif(coalesce(:birth_date, birth_date), ''),
    gender = nullif(coalesce(:gender, gender), ''),
    language = nullif(coalesce(:language, language), ''),
    consent = CASE WHEN consent_at > :received_at AND consent_at <= :now THEN consent
        ELSE coalesce(CAST(:consent AS INTEGER), consent) END,
    consent_at = CASE WHEN CAST(:consent AS INTEGER) IS NULL
            OR (consent_at > :received_at AND consent_at <= :now) THEN consent_at
        ELSE :received_at END,
    phone_due = CASE WHEN CAST(:phone AS TEXT) IS NULL AND CAST(:country AS TEXT) IS NULL
        THEN phone_due ELSE 1 END
WHERE id = :id

-- name: customer_consent_again
-- The customer gave the same consent again: only its time changes. As in customer_update, not if they
-- answered between :received_at and :now.
UPDATE customer SET consent_at = :received_at
WHERE id = :id AND NOT (consent_at > :received_at AND consent_at <= :now)

-- name: customer_due
-- plan: kept
-- Possible duplicates. :old: units of work that began before then have ended, so that no concurrent one
-- can miss the customer.
SELECT c.id, c.hotel_id, c.phone, c.phone_tail, c.country, h.region
FROM customer c JOIN hotel h ON h.id = c.hotel_id
WHERE c.phone_due = 1 AND c.created_at <= :old AND c.id > :after
ORDER BY c.id LIMIT :limit

-- name: customer_range
-- The last id of the next page of customers.
SELECT max(id) AS last, min(created_at) AS oldest
FROM (SELECT id, created_at FROM customer WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: customer_mark_hotel
-- Makes customers of a hotel due: its region has changed, and national numbers are read by the region.
-- Only those without an address: one of two duplicates has none.
UPDATE customer SET phone_due = 1 WHERE hotel_id = :hotel_id AND email IS NULL AND phone IS NOT NULL

-- name: customer_move_requests
UPDATE reservation SET customer_id = :id
WHERE customer_id IN :ids[bigint]

-- name: customer_delete
DELETE FROM customer WHERE id IN :ids[bigint]

-- name: customer_absorb
-- Merges the data of other customers into one.
UPDATE customer SET
    email = :email, phone = :phone, first_name = :first_name, last_name = :last_name, city = :city,
    postal_code = :postal_code, country = :country, state = :state, birth_date = :birth_date,
    gender = :gender, language = :language, consent = :consent, consent_at = :consent_at,
    phone_due = 1
WHERE id = :id

-- name: customer_ids_by_email
SELECT c.id FROM hotel h JOIN customer c ON c.hotel_id = h.id AND c.email = :email

-- name: customer_by_tail
-- The customers of all hotels whose number ends with these digits.
SELECT c.id, c.phone, c.country, h.region
FROM hotel h JOIN customer c ON c.hotel_id = h.id AND c.phone_tail = :tail

-- name: customer_ids_by_name
-- Reads all customers: the only query that does.
SELECT id FROM customer
WHERE (lower(first_name) LIKE lower(:pattern) ESCAPE '\' OR lower(last_name) LIKE lower(:pattern) ESCAPE '\')
    AND hotel_id = coalesce(:hotel_id, hotel_id)
ORDER BY id DESC LIMIT :limit

-- name: customer_read
-- phone_e164: set by its reader (search.py).
SELECT c.id, h.code AS hotel, c.hotel_id, h.region, c.email, c.phone, NULL AS phone_e164,
    c.first_name, c.last_name, c.city, c.postal_code, c.country, c.state, c.birth_date, c.gender, c.language,
    c.consent, c.consent_at, c.created_at, c.phone_due,
    (SELECT count(*) FROM reservation r WHERE r.customer_id = c.id) AS requests,
    (SELECT max(r.changed_at) FROM reservation r WHERE r.customer_id = c.id) AS last_request_at
FROM customer c JOIN hotel h ON h.id = c.hotel_id
WHERE c.id IN :ids[bigint]
ORDER BY c.id

-- name: customer_requests
SELECT r.id, s.name AS source, r.external_id, r.status, r.created_at, r.changed_at, r.hotel_status,
    r.hotel_status_at
FROM reservation r JOIN source s ON s.id = r.source_id
WHERE r.customer_id IN :ids[bigint]
ORDER BY r.id

-- name: customer_versions
SELECT reservation_id, version, res_status, created_at, request_id, data FROM reservation_version
WHERE reservation_id IN :ids[text]
ORDER BY reservation_id, version

-- name: customer_versions_at
SELECT reservation_id, version, res_status, created_at, request_id, data FROM reservation_version
WHERE id IN :ids[bigint]
ORDER BY reservation_id, version

-- name: customer_deliveries
SELECT d.reservation_id, d.version, u.name AS account, d.client_id, d.sent_at, d.acked_at,
    d.rejected_text
FROM delivery d JOIN account u ON u.id = d.account_id
WHERE d.reservation_id IN :ids[text]
ORDER BY d.reservation_id, d.version, u.name

-- name: customer_events
SELECT e.id, e.reservation_id, e.version, e.event, u.name AS account, e.at, e.request_id, e.detail
FROM reservation_history e LEFT JOIN account u ON u.id = e.account_id
WHERE e.reservation_id IN :ids[text]
ORDER BY e.at, e.id

-- name: customer_inbox
SELECT id, reservation_id, received_at, state, request_id, headers, body FROM inbox
WHERE reservation_id IN :ids[text]
ORDER BY id

-- name: customer_inbox_at
SELECT i.id, h.code AS hotel, s.name AS source, i.received_at, i.state, i.reservation_id,
    i.request_id, i.headers, i.body
FROM inbox i JOIN source s ON s.id = i.source_id JOIN hotel h ON h.id = s.hotel_id
WHERE i.id IN :ids[bigint]
ORDER BY i.id

-- name: customer_hotels
SELECT id, region FROM hotel WHERE id = coalesce(:hotel_id, id) ORDER BY id

-- name: customer_inbox_range
-- newest: shows how much of the table is read.
SELECT max(id) AS last, min(received_at) AS oldest, (SELECT max(id) FROM inbox) AS newest
FROM (SELECT id, received_at FROM inbox WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: customer_scan_inbox
SELECT i.id, s.hotel_id, h.code AS hotel, s.name AS source, i.received_at, i.state,
    i.reservation_id, r.customer_id, i.body
FROM inbox i JOIN source s ON s.id = i.source_id JOIN hotel h ON h.id = s.hotel_id
LEFT JOIN reservation r ON r.id = i.reservation_id
WHERE i.id > :after AND i.id <= :last AND length(i.body) > 0
ORDER BY i.id

-- name: customer_version_range
SELECT max(id) AS last, (SELECT max(id) FROM reservation_version) AS newest
FROM (SELECT id FROM reservation_version WHERE id > :after ORDER BY id LIMIT :limit)
    AS next

-- name: customer_scan_versions
-- Versions that are not the newest; the newest belongs to the customer of its reservation.
SELECT v.id, v.data, r.hotel_id, r.customer_id
FROM reservation_version v JOIN reservation r ON r.id = v.reservation_id AND r.version > v.version
WHERE v.id > :after AND v.id <= :last
ORDER BY v.id

-- name: customer_mail_range
SELECT max(id) AS last, (SELECT max(id) FROM mail) AS newest
FROM (SELECT id FROM mail WHERE id > :after ORDER BY id LIMIT :limit) AS next

-- name: customer_scan_mails
-- The runtime keeps them for [mail] retention_s.
SELECT id, subject, text, html FROM mail WHERE id > :after AND id <= :last ORDER BY id

-- name: customer_waiting
-- Requests that can still be delivered to an account, each once.
SELECT count(DISTINCT r.id) AS waiting FROM deliverable d JOIN reservation r ON r.id = d.reservation_id
WHERE r.customer_id IN :ids[bigint]

-- name: customer_clear_version
UPDATE reservation_version SET data = :data, content_hash = :content_hash
WHERE reservation_id = :reservation_id AND version = :version

-- name: customer_clear_refusals
-- The reason is removed; that the request was rejected stays.
UPDATE delivery SET rejected_text = ''
WHERE reservation_id IN :ids[text]
    AND rejected_text IS NOT NULL

-- name: customer_end_waiting
UPDATE delivery SET waiting = 0, cancelled_at = :now
WHERE reservation_id IN :ids[text] AND waiting = 1

-- name: customer_clear_event
UPDATE reservation_event SET detail = :detail WHERE id = :id

-- name: customer_clear_request
UPDATE reservation SET customer_id = NULL, external_id = :external_id, erased_at = :now
WHERE id = :id

-- name: customer_clear_mail
UPDATE mail SET subject = :subject, text = :text, html = :html WHERE id = :id

-- name: customer_without_email
-- Customers without an e-mail address whose number ends with these digits, and the one with both.
SELECT id, email, phone, first_name, last_name, city, postal_code, country, state, birth_date,
    gender, language, consent, consent_at
FROM customer
WHERE hotel_id = :hotel_id AND phone_tail = :phone_tail AND (email IS NULL OR id = :owner)
ORDER BY id

-- name: customer_requests_to_erase
SELECT id, version, external_id,
    (SELECT kind FROM source s WHERE s.id = reservation.source_id) AS kind
FROM reservation
WHERE customer_id IN :ids[bigint]
ORDER BY id LIMIT :limit

-- name: customer_clear_inbox
-- Submissions in review are rejected. :empty is a body of no bytes. :is_open = 1: only those that are of
-- no guest request; one that was mapped meanwhile belongs to a customer now.
UPDATE inbox SET body = :empty, headers = '{}', external_id = NULL, error = NULL,
    state = CASE WHEN state = 'review' THEN 'rejected' ELSE state END,
    outcome = CASE WHEN state = 'review' THEN 'erased' ELSE outcome END
WHERE id IN :ids[bigint] AND (:is_open = 0 OR reservation_id IS NULL)
