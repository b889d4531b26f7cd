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
