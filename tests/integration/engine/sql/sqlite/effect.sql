-- name: add_effect
INSERT INTO effect (event_id, owner, at) VALUES (:event_id, :owner, :at);

-- name: effects
SELECT event_id, owner, at FROM effect ORDER BY id;

-- name: outbox_states
SELECT state, count(*) AS count FROM outbox GROUP BY state;

-- name: messages
SELECT outbox_id, "group", state, attempts, owner, next_at, history FROM message
ORDER BY outbox_id, "group";

-- name: seen_count
SELECT count(*) AS count FROM seen;
