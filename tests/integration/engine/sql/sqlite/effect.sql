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

-- name: age_outbox
UPDATE outbox SET state = 'published', created_at = :at, published_at = :at WHERE id <= 1200;

-- name: age_seen
INSERT INTO seen (event_id, "group", created_at) VALUES (:event_id, 'g', :at);

-- name: add_message
INSERT INTO message (outbox_id, "group", state, priority, next_at, dead_at)
VALUES (:outbox_id, 'g', 'dead', 0, 0, 1);

-- name: mails
SELECT id, state, attempts, last_error, message_id FROM mail ORDER BY id;

-- name: steal_jobs
UPDATE job_run SET owner = 'thief';

-- name: messages_left
SELECT (SELECT count(*) FROM outbox WHERE state = 'pending')
    + (SELECT count(*) FROM message WHERE state <> 'dead') AS count;

-- name: age_group
UPDATE consumer_group SET refreshed_at = :at WHERE "group" = :group;

-- name: expire_claims
UPDATE outbox SET claimed_until = 1 WHERE state = 'processing' AND owner = :owner;

-- name: fail_entries
UPDATE outbox SET state = :state, attempts = 3, last_error = 'BrokerUnavailable: gone', next_at = :at
WHERE state = 'pending';

-- name: age_key
UPDATE idempotency SET created_at = :at WHERE key = :key;

-- name: age_mail
UPDATE mail SET created_at = :at, state = :state WHERE subject = :subject;

-- name: keys_left
SELECT key FROM idempotency ORDER BY key;

-- name: subjects_left
SELECT subject FROM mail ORDER BY subject;
