-- name: trail_add
-- Of a reservation that is there: retention may have ended it before its event was handled.
INSERT INTO reservation_event (reservation_id, version, event, user_id, at, request_id, detail)
SELECT :reservation_id, :version, :event, :user_id, :at, :request_id, :detail
FROM reservation r WHERE r.id = :reservation_id

-- name: trail_add_once
INSERT INTO reservation_event (reservation_id, version, event, user_id, at, request_id, detail)
SELECT :reservation_id, :version, :event, :user_id, :at, :request_id,
       :detail
FROM reservation r WHERE r.id = :reservation_id AND NOT EXISTS (
    SELECT 1 FROM reservation_event e
    WHERE e.reservation_id = :reservation_id AND e.version = :version AND e.event = :event
      AND e.user_id = :user_id AND e.detail = :detail)
