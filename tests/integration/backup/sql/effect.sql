-- name: effect.add
INSERT INTO effect (event_id, number) VALUES (:event_id, :number);
