-- name: testing.outbox
SELECT event_id, type, key, payload, headers, lane, priority, state, next_at, created_at
FROM outbox WHERE :type::text IS NULL OR type = :type::text ORDER BY id;

-- name: testing.mails
SELECT message_id, "to", subject, text, html, inline, created_at FROM mail ORDER BY id;
