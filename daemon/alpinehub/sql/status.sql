-- What became of guest requests at the hotel.

-- name: status_set
UPDATE reservation SET hotel_status = :status, hotel_status_at = :at WHERE id = :id
