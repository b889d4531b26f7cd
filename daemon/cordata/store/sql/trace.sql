-- What the store knows of one request, for `cordata trace`. None of them reads a payload or a mail's
-- text. Headers are searched as text, `!` escapes; the caller compares what was found.

-- name: trace.event
SELECT position, id, type, headers, created_at FROM event WHERE id = :event_id;

-- name: trace.events
SELECT position, id, type, headers, created_at FROM event
WHERE position < :after AND position >= :floor AND headers LIKE :text ESCAPE '!'
ORDER BY position;

-- name: trace.stored_below
-- As inspection.below, of the event store.
SELECT min(position) AS position, max(created_at) AS latest FROM (
    SELECT position, created_at FROM stored_event WHERE position < :after
    ORDER BY position DESC LIMIT :limit) AS page;

-- name: trace.stored
SELECT position, category, type, headers, created_at FROM stored_event
WHERE position < :after AND position >= :floor AND headers LIKE :text ESCAPE '!'
ORDER BY position;

-- name: trace.mails
SELECT id, state, attempts, created_at, next_at, sent_at FROM mail
WHERE request_id IN :request_ids[text] AND created_at >= :since ORDER BY id;
