-- name: testing.outbox
SELECT event_id, type, key, payload, headers, lane, priority, state, next_at, created_at
FROM outbox WHERE :type IS NULL OR type = :type ORDER BY id;

-- name: testing.mails
SELECT message_id, "to", subject, text, html, inline, created_at FROM mail ORDER BY id;
