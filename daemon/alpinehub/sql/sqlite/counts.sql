-- Versions per hotel and hour, each counted once (counts.py).

-- name: note_change
INSERT INTO hour_change (hotel_id, hour_at, received, modified, cancelled)
VALUES (:hotel_id, :hour_at, :received, :modified, :cancelled)

-- name: hour_changes
-- The next ones to be folded in.
SELECT id, hotel_id, hour_at, received, modified, cancelled FROM hour_change
ORDER BY id LIMIT :limit

-- name: add_to_hour
INSERT INTO hotel_hour (hotel_id, hour_at, received, modified, cancelled)
VALUES (:hotel_id, :hour_at, :received, :modified, :cancelled)
ON CONFLICT (hotel_id, hour_at) DO UPDATE SET
    received = hotel_hour.received + excluded.received,
    modified = hotel_hour.modified + excluded.modified,
    cancelled = hotel_hour.cancelled + excluded.cancelled

-- name: forget_changes
DELETE FROM hour_change WHERE id IN (SELECT value FROM json_each(:ids))
