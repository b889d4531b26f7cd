-- Statements for PostgreSQL only; those for both stores are in ../requests.sql.

-- name: requests_open
-- Waiting requests, by the index delivery_waiting: they may be much older than the newest requests.
-- :undeliverable 1: only those that cannot be sent. :account_id, :hotel_id NULL: of all.
WITH open AS MATERIALIZED (
    SELECT d.reservation_id FROM delivery d
    WHERE d.waiting = 1 AND (:hotel_id::bigint IS NULL OR d.hotel_id = :hotel_id::bigint)
      AND (:account_id::bigint IS NULL OR d.account_id = :account_id::bigint)
      AND (:undeliverable::integer = 0 OR d.undeliverable_code IS NOT NULL OR d.undeliverable_text IS NOT NULL))
SELECT r.id, h.code AS hotel, s.name AS source, r.status, r.version, r.created_at, r.changed_at,
    r.hotel_status
FROM (SELECT DISTINCT reservation_id AS id FROM open WHERE reservation_id < :before_id
      ORDER BY reservation_id DESC LIMIT :limit) o
JOIN reservation r ON r.id = o.id
JOIN hotel h ON h.id = r.hotel_id JOIN source s ON s.id = r.source_id
ORDER BY r.id DESC
