-- name: note_event
INSERT INTO reservation_event (reservation_id, version, event, user_id, at, request_id)
VALUES (:reservation_id, :version, :event, :user_id, :at, :request_id)
