-- Queries that the store itself runs. The broker, jobs and mail have files of their own.

-- name: migration.all
SELECT component, number, name, digest FROM migration ORDER BY component{| COLLATE "C"}, number;

-- name: mail.add
-- A second insert of the same message_id is a no-op.
INSERT INTO mail (message_id, "to", subject, text, html, inline, next_at, request_id, created_at)
VALUES (:message_id, :to, :subject, :text, :html, :inline, :next_at, :request_id, :created_at)
ON CONFLICT (message_id) DO NOTHING;

-- name: idempotency.get
SELECT body_hash, response FROM idempotency WHERE scope = :scope AND key = :key;

-- name: idempotency.add
INSERT INTO idempotency (scope, key, body_hash, response, created_at)
VALUES (:scope, :key, :body_hash, :response, :created_at);

-- name: lease.release
UPDATE lease SET released_at = :released_at WHERE name = 'primary' AND term = :term;

-- name: lease.request_takeover
UPDATE lease
SET wanted_by = :wanted_by, wanted_component = :component, wanted_number = :number,
    wanted_at = :wanted_at
WHERE name = 'primary';

-- name: lease.takeover_request
-- A request is void once its migration is applied, by whichever process.
SELECT wanted_by FROM lease
WHERE name = 'primary' AND wanted_by <> :holder AND wanted_at > :since AND NOT EXISTS (
    SELECT 1 FROM migration AS m
    WHERE m.component = lease.wanted_component AND m.number = lease.wanted_number);

-- name: lease.term
SELECT term FROM lease WHERE name = 'primary';

-- name: lease.lock
-- Within a fenced unit: a process that takes the lease over waits for it, on SQLite for every unit.
SELECT term FROM lease WHERE name = 'primary'{| FOR SHARE};

-- name: lease.take
-- newest
INSERT INTO lease (name, holder, term, acquired_at) VALUES ('primary', :holder, 1, :acquired_at)
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, term = lease.term + 1, acquired_at = excluded.acquired_at,
    released_at = NULL, wanted_by = NULL, wanted_at = NULL
RETURNING term;
