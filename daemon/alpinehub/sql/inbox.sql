-- Submissions of Wix, Google Ads and forms, and their results (inbox/).

-- name: inbox_open
-- plan: kept
-- A submission with all data needed to interpret it.
SELECT i.id, i.source_id, i.external_id, i.received_at, i.headers, i.body, i.state, i.outcome,
    i.error, i.reservation_id, i.handled_at, i.request_id, s.kind, s.name AS source,
    s.mapping, s.options, h.id AS hotel_id, h.code AS hotel, h.name AS hotel_name, h.time_zone,
    h.language, h.region
FROM inbox i JOIN source s ON s.id = i.source_id JOIN hotel h ON h.id = s.hotel_id
WHERE i.id = :id

-- name: inbox_settle
UPDATE inbox
SET state = :state, outcome = :outcome, error = :error, reservation_id = :reservation_id,
    external_id = :external_id, handled_at = :now
WHERE id = :id

-- name: inbox_forms
-- plan: kept
SELECT id, shape, fields, first_seen_at, last_seen_at FROM form
WHERE source_id = :source_id AND form_key = :form_key ORDER BY id

-- name: inbox_form_count
SELECT count(*) AS known FROM form WHERE source_id = :source_id

-- name: inbox_form_add
INSERT INTO form (source_id, form_key, shape, fields, first_seen_at, last_seen_at)
VALUES (:source_id, :form_key, :shape, :fields, :at, :at)
ON CONFLICT (source_id, form_key, shape) DO UPDATE SET last_seen_at = excluded.last_seen_at

-- name: inbox_form_seen
UPDATE form SET last_seen_at = :at WHERE id = :id

-- name: source_forms
SELECT form_key, fields, first_seen_at, last_seen_at FROM form
WHERE source_id = :source_id ORDER BY last_seen_at DESC, id DESC

-- name: inbox_newer
-- Whether a later submission changed the reservation.
SELECT id FROM inbox WHERE reservation_id = :reservation_id AND id > :id LIMIT 1

-- name: inbox_list
-- Newest first, out of the next :window rows; a NULL asks for all.
SELECT i.id, i.received_at, h.code AS hotel, s.name AS source, s.kind, i.state, i.outcome, i.error,
    i.reservation_id
FROM (
    SELECT id, source_id, received_at, state, outcome, error, reservation_id FROM inbox
    WHERE id < :after ORDER BY id DESC LIMIT :window
) i JOIN source s ON s.id = i.source_id JOIN hotel h ON h.id = s.hotel_id
WHERE i.received_at >= :since AND h.code = coalesce(:hotel, h.code)
    AND s.name = coalesce(:source, s.name) AND i.state = coalesce(:state, i.state)
ORDER BY i.id DESC LIMIT :limit

-- name: inbox_window
-- The last id of the window that inbox_list read; NULL: no rows are left.
SELECT min(id) AS id, min(received_at) AS received_at
FROM (SELECT id, received_at FROM inbox WHERE id < :after ORDER BY id DESC LIMIT :window) i

-- name: inbox_list_review
-- As inbox_list, for the few submissions that wait for a person, which have an index.
SELECT i.id, i.received_at, h.code AS hotel, s.name AS source, s.kind, i.state, i.outcome, i.error,
    i.reservation_id
FROM inbox i JOIN source s ON s.id = i.source_id JOIN hotel h ON h.id = s.hotel_id
WHERE i.state = 'review' AND i.id < :after AND i.received_at >= :since
    AND (CAST(:hotel AS TEXT) IS NULL OR h.code = :hotel)
    AND (CAST(:source AS TEXT) IS NULL OR s.name = :source)
ORDER BY i.id DESC LIMIT :limit

-- name: inbox_undeliverable
-- Waiting versions that the protocol of their account cannot carry; columns as in inbox_list.
SELECT d.reservation_id AS id, d.undeliverable_at AS received_at, h.code AS hotel, s.name AS source,
    s.kind, 'undeliverable' AS state, NULL AS outcome,
    d.undeliverable_code || ' for ' || u.name || ': ' || d.undeliverable_text AS error, d.reservation_id
FROM delivery d JOIN reservation r ON r.id = d.reservation_id JOIN hotel h ON h.id = d.hotel_id
JOIN source s ON s.id = r.source_id JOIN account u ON u.id = d.account_id
WHERE d.waiting = 1 AND d.undeliverable_code IS NOT NULL
    AND u.disabled_at IS NULL AND h.disabled_at IS NULL
    AND (SELECT 1 FROM account_hotel uh
         WHERE uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id) IS NOT NULL
    AND d.undeliverable_at >= :since
    AND h.code = coalesce(:hotel, h.code) AND s.name = coalesce(:source, s.name)
ORDER BY d.undeliverable_at DESC LIMIT :limit

-- name: inbox_reject
-- Unless it was settled meanwhile.
UPDATE inbox SET state = 'rejected', error = :reason, handled_at = :now
WHERE id = :id AND state = 'review'

-- name: inbox_erase
-- :empty is a body of no bytes.
UPDATE inbox SET body = :empty, headers = '{}', external_id = NULL, error = :reason,
    outcome = coalesce(outcome, 'erased')
WHERE id = :id AND state = 'rejected'

-- name: inbox_lock
-- newest
-- Locks the row, so that no other process settles it, and its source, so that the hotel is not granted
-- to an account meanwhile (lock_sources).
SELECT i.state, i.outcome, length(i.body) > 0 AS has_text
FROM inbox i JOIN source s ON s.id = i.source_id WHERE i.id = :id
{|FOR NO KEY UPDATE OF i FOR KEY SHARE OF s}

-- name: inbox_lock_content
-- newest
-- One unit at a time settles a content of a source, so that of two with the same content the second finds
-- the request of the first. SQLite has one writer.
SELECT {coalesce(:source_id, :content)|pg_advisory_xact_lock(hashtextextended(:content, :source_id))} AS locked
