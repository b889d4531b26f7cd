-- The status of guest requests that hotel software reports.

-- name: status_set
UPDATE reservation SET hotel_status = :status, hotel_status_at = :at WHERE id = :id
