-- What the engine's tests write and look at.

-- name: add_effect
INSERT INTO effect (event_id, owner, at) VALUES (:event_id, :owner, :at);

-- name: effects
SELECT event_id, owner, at FROM effect ORDER BY id;

-- name: mails
SELECT id, state, attempts, last_error, message_id FROM mail ORDER BY id;

-- name: steal_jobs
UPDATE job_run SET owner = 'thief';

-- name: age_key
UPDATE idempotency SET created_at = :at WHERE key = :key;

-- name: age_mail
UPDATE mail SET created_at = :at, state = :state WHERE subject = :subject;

-- name: keys_left
SELECT key FROM idempotency ORDER BY key;

-- name: subjects_left
SELECT subject FROM mail ORDER BY subject;

-- name: messages
SELECT event_id, "group", position, state, attempts, owner, next_at, suspect, history FROM message
ORDER BY position, "group";

-- name: handled
SELECT event_id, "group" FROM handled ORDER BY event_id, "group";

-- name: handled_count
SELECT count(*) AS count FROM handled;

-- name: event_count
SELECT count(*) AS count FROM event;

-- name: messages_left
-- What is open.
SELECT count(*) AS count FROM message WHERE state <> 'dead';

-- name: due_now
-- Whatever waits for its time.
UPDATE message SET next_at = :now_us WHERE next_at > :now_us;

-- name: age_events
UPDATE event SET created_at = :at, due_at = :at WHERE position <= :position;

-- name: age_marks
UPDATE handled SET handled_at = :at;

-- name: age_group
UPDATE consumer_group SET present_at = :at WHERE "group" = :group;

-- name: forget_group
DELETE FROM consumer_group WHERE "group" = :group;
