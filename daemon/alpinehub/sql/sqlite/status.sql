-- Statements for SQLite only; those for both stores are in ../status.sql.

-- name: status_find
-- :ids is [reservation id, ...]. Only requests of hotels that the account reads.
SELECT r.id AS reservation_id, r.version, r.hotel_id, r.hotel_status, r.hotel_status_at
FROM json_each(:ids) j JOIN reservation r ON r.id = j.value
JOIN account_hotel uh ON uh.hotel_id = r.hotel_id AND uh.account_id = :account_id
ORDER BY r.id
