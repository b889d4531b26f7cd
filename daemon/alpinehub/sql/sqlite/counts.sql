-- Versions per hotel and hour, each counted once (counts.py).

-- name: count_position
SELECT position FROM count_position WHERE name = 'hotel_hour'

-- name: count_end
-- The last version of the next step, at most :step of them; NULL when there is none.
SELECT max(id) AS position FROM (
    SELECT id FROM reservation_version WHERE id > :position ORDER BY id LIMIT :step
)

-- name: count_versions
INSERT INTO hotel_hour (hotel_id, hour_at, received, modified, cancelled)
SELECT r.hotel_id, v.created_at - v.created_at % 3600000000,
    sum(v.version = 1),
    sum(v.version > 1 AND v.res_status <> 'Cancelled'),
    sum(v.version > 1 AND v.res_status = 'Cancelled')
FROM reservation_version v JOIN reservation r ON r.id = v.reservation_id
WHERE v.id > :after AND v.id <= :upto
GROUP BY 1, 2
ON CONFLICT (hotel_id, hour_at) DO UPDATE SET
    received = hotel_hour.received + excluded.received,
    modified = hotel_hour.modified + excluded.modified,
    cancelled = hotel_hour.cancelled + excluded.cancelled

-- name: move_count_position
UPDATE count_position SET position = :position WHERE name = 'hotel_hour'
