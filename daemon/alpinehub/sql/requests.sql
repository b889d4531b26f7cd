-- Guest requests as the operator sees them (requests/). Lists hold nothing that a guest wrote.

-- name: requests_newest
SELECT r.id, h.code AS hotel, s.name AS source, r.status, r.version, r.created_at, r.changed_at,
    r.hotel_status
FROM reservation r JOIN hotel h ON h.id = r.hotel_id JOIN source s ON s.id = r.source_id
WHERE r.id < :before_id ORDER BY r.id DESC LIMIT :limit

-- name: requests_of_hotel
SELECT r.id, h.code AS hotel, s.name AS source, r.status, r.version, r.created_at, r.changed_at,
    r.hotel_status
FROM reservation r JOIN hotel h ON h.id = r.hotel_id JOIN source s ON s.id = r.source_id
WHERE r.hotel_id = :hotel_id AND (r.created_at, r.id) < (:before_at, :before_id)
ORDER BY r.created_at DESC, r.id DESC LIMIT :limit

-- name: requests_hold
-- To be read with a lock. That of the source excludes grants (lock_sources), and is taken first, as by a
-- unit that makes a version: by the foreign key of the inbox.
SELECT r.id, r.hotel_id, r.source_id, r.customer_id, r.version, r.status, r.erased_at
FROM source s JOIN reservation r ON r.source_id = s.id
WHERE r.id = :id

-- name: requests_when
SELECT created_at FROM reservation WHERE id = :id

-- name: requests_one
SELECT r.id, h.code AS hotel, s.name AS source, r.external_id, r.customer_id, r.status, r.version,
    v.res_status, r.created_at, r.changed_at, r.hotel_status, r.hotel_status_at, v.data
FROM reservation r JOIN hotel h ON h.id = r.hotel_id JOIN source s ON s.id = r.source_id
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.id = :id

-- name: requests_versions
SELECT version, res_status, created_at, request_id FROM reservation_version
WHERE reservation_id = :id ORDER BY version

-- name: requests_deliveries
SELECT d.reservation_id, d.account_id, u.name AS account, d.version, d.waiting, d.sent_at, c.polled_at,
    d.acked_at, d.cancelled_at, d.undeliverable_code, d.undeliverable_text, d.rejected_text,
    d.client_id, (d.rejected_text IS NOT NULL) AS rejected,
    (d.undeliverable_code IS NOT NULL) AS undeliverable,
    (uh.account_id IS NULL) AS revoked,
    (u.disabled_at IS NOT NULL OR h.disabled_at IS NOT NULL) AS disabled,
    (d.unique_id_type = 15 AND NOT EXISTS (  -- as in waiting_delivery
        SELECT 1 FROM delivery given
        WHERE given.reservation_id = d.reservation_id AND given.account_id = d.account_id
            AND given.version < d.version AND given.ever_sent = 1)) AS unneeded
FROM delivery d JOIN account u ON u.id = d.account_id
LEFT JOIN account_hotel uh ON uh.account_id = d.account_id AND uh.hotel_id = d.hotel_id
LEFT JOIN contact c ON c.account_id = d.account_id AND c.hotel_id = d.hotel_id
JOIN hotel h ON h.id = d.hotel_id
WHERE d.reservation_id IN :ids[text] ORDER BY d.reservation_id, d.version, u.name

-- name: requests_inbox
SELECT id, received_at, state, outcome, request_id FROM inbox
WHERE reservation_id = :id ORDER BY id

-- name: requests_history
SELECT e.at, e.event, e.version, u.name AS account, e.request_id, e.detail
FROM reservation_history e LEFT JOIN account u ON u.id = e.account_id
WHERE e.reservation_id = :id ORDER BY e.at, e.id

-- name: requests_xml
-- With the columns of delivery_list_waiting, to render it.
SELECT r.id AS reservation_id, r.version, r.external_id, r.created_at, v.res_status, v.data,
    v.created_at AS changed_at, s.name AS source, h.id AS hotel_id, h.code AS hotel,
    h.name AS hotel_name, h.time_zone, h.language, h.region
FROM reservation r JOIN hotel h ON h.id = r.hotel_id JOIN source s ON s.id = r.source_id
JOIN reservation_version v ON v.reservation_id = r.id AND v.version = r.version
WHERE r.id = :id

-- name: requests_data
SELECT data, content_hash FROM reservation_version WHERE reservation_id = :id AND version = :version

-- name: requests_readers
SELECT uh.account_id, u.name AS account FROM account_hotel uh JOIN account u ON u.id = uh.account_id
WHERE uh.hotel_id = :hotel_id ORDER BY u.name

-- name: requests_cancel
UPDATE delivery SET waiting = 0, cancelled_at = :now_us
WHERE reservation_id = :id AND waiting = 1
  AND (CAST(:account_id AS BIGINT) IS NULL OR account_id = CAST(:account_id AS BIGINT))
RETURNING account_id

-- name: requests_withdraw
-- From the lists of all accounts, also of those granted later. NULL: no longer withdrawn.
UPDATE reservation SET withdrawn_at = :at WHERE id = :id

-- name: requests_waiting
-- The accounts that a request waits for.
SELECT u.name AS account FROM deliverable d JOIN account u ON u.id = d.account_id
WHERE d.reservation_id = :id ORDER BY u.name

-- name: requests_resend
-- The version waits again; a late acknowledgement of the earlier delivery does not count. What already
-- waits is neither changed nor returned; a cancellation of a request that the account never got is
-- left out. :account_id NULL: all accounts of the hotel.
INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type, waiting)
SELECT r.id, uh.account_id, r.version, r.hotel_id, CAST(:unique_id_type AS INTEGER), 1
FROM reservation r JOIN account_hotel uh ON uh.hotel_id = r.hotel_id
WHERE r.id = :id AND (CAST(:account_id AS BIGINT) IS NULL OR uh.account_id = CAST(:account_id AS BIGINT))
  AND (CAST(:unique_id_type AS INTEGER) = 14 OR EXISTS (  -- as in waiting_delivery
        SELECT 1 FROM delivery given
        WHERE given.reservation_id = r.id AND given.account_id = uh.account_id
            AND given.version < r.version AND given.ever_sent = 1))
ORDER BY uh.account_id
ON CONFLICT (reservation_id, account_id, version) DO UPDATE SET
    sent_at = NULL, waiting = 1, acked_at = NULL, rejected_text = NULL, cancelled_at = NULL
    WHERE delivery.waiting = 0
RETURNING account_id, (SELECT name FROM account u WHERE u.id = account_id) AS account

-- name: requests_open
-- Waiting requests, by the index delivery_waiting: they may be much older than the newest requests.
-- :undeliverable 1: only those that cannot be sent. :account_id, :hotel_id NULL: of all.
WITH open AS MATERIALIZED (
    SELECT w.reservation_id FROM delivery AS w{ INDEXED BY delivery_waiting|}
    WHERE w.waiting = 1 AND (CAST(:hotel_id AS BIGINT) IS NULL OR w.hotel_id = :hotel_id)
      AND (CAST(:account_id AS BIGINT) IS NULL OR w.account_id = :account_id)
      AND (CAST(:undeliverable AS INTEGER) = 0 OR w.undeliverable_code IS NOT NULL))
SELECT r.id, h.code AS hotel, s.name AS source, r.status, r.version, r.created_at, r.changed_at,
    r.hotel_status
FROM (SELECT DISTINCT reservation_id AS id FROM open WHERE reservation_id < :before_id
      ORDER BY reservation_id DESC LIMIT :limit) o
JOIN reservation r ON r.id = o.id
JOIN hotel h ON h.id = r.hotel_id JOIN source s ON s.id = r.source_id
ORDER BY r.id DESC
