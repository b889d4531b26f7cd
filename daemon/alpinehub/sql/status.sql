-- The status of guest requests that hotel software reports.

-- name: status_find
-- Only requests of hotels that the account reads.
SELECT id AS reservation_id, version, hotel_id, hotel_status, hotel_status_at FROM reservation
WHERE id IN :ids[text]
    AND hotel_id IN (SELECT hotel_id FROM account_hotel WHERE account_id = :account_id)
ORDER BY id

-- name: status_set
UPDATE reservation SET hotel_status = :status, hotel_status_at = :at WHERE id = :id
