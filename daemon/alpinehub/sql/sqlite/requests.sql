-- Statements for SQLite only; those for both stores are in ../requests.sql.

-- name: requests_open
-- Waiting requests, by the index delivery_waiting: they may be much older than the newest requests.
-- :undeliverable 1: only those that cannot be sent. :account_id, :hotel_id NULL: of all.
WITH open AS MATERIALIZED (
    SELECT w.reservation_id FROM delivery AS w INDEXED BY delivery_waiting
    WHERE w.waiting = 1 AND (:hotel_id IS NULL OR w.hotel_id = :hotel_id)
      AND (:account_id IS NULL OR w.account_id = :account_id)
      AND (:undeliverable = 0 OR w.undeliverable_code IS NOT NULL OR w.undeliverable_text IS NOT NULL))
SELECT r.id, h.code AS hotel, s.name AS source, r.status, r.version, r.created_at, r.changed_at,
    r.hotel_status
FROM (SELECT DISTINCT reservation_id AS id FROM open WHERE reservation_id < :before_id
      ORDER BY reservation_id DESC LIMIT :limit) o
JOIN reservation r ON r.id = o.id
JOIN hotel h ON h.id = r.hotel_id JOIN source s ON s.id = r.source_id
ORDER BY r.id DESC

-- name: requests_lock_source
SELECT source_id FROM reservation WHERE id = :id

-- name: requests_lock
SELECT id, hotel_id, source_id, customer_id, version, status, erased_at FROM reservation
WHERE id = :id

-- name: requests_resend
-- The version waits again; a late acknowledgement of the earlier delivery does not count. What already
-- waits is neither changed nor returned; a cancellation of a request that the account never got is
-- left out. :account_id NULL: all accounts of the hotel.
INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type, waiting)
SELECT r.id, uh.account_id, r.version, r.hotel_id, :unique_id_type, 1
FROM reservation r JOIN account_hotel uh ON uh.hotel_id = r.hotel_id
WHERE r.id = :id AND (:account_id IS NULL OR uh.account_id = :account_id)
  AND (:unique_id_type = 14 OR EXISTS (  -- as in waiting_delivery
        SELECT 1 FROM delivery given
        WHERE given.reservation_id = r.id AND given.account_id = uh.account_id
            AND given.version < r.version AND given.last_sent_at IS NOT NULL))
ON CONFLICT (reservation_id, account_id, version) DO UPDATE SET
    first_sent_at = NULL, waiting = 1, acked_at = NULL, rejected_text = NULL, cancelled_at = NULL
    WHERE delivery.waiting = 0
RETURNING account_id, (SELECT name FROM account u WHERE u.id = account_id) AS account
