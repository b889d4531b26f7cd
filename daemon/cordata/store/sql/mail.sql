-- The mail service's queue.

-- name: mail.due
-- If a row is 'sending', its sender has died: it is due at once.
SELECT id, message_id, "to", remaining, subject, text, html, inline, state, attempts,
       request_id, created_at, sent_at
FROM mail WHERE state IN ('pending', 'sending') AND next_at <= :now_us
ORDER BY next_at, id LIMIT 1;

-- name: mail.next_at
SELECT min(next_at) AS next_at FROM mail WHERE state IN ('pending', 'sending');

-- name: mail.begin
UPDATE mail SET state = 'sending', attempts = attempts + 1
WHERE id = :id AND state IN ('pending', 'sending');

-- name: mail.end
-- sent_at: when it was sent to the first recipient.
UPDATE mail SET state = :state, remaining = :remaining, last_error = :last_error,
    next_at = :next_at, sent_at = coalesce(sent_at, :sent_at)
WHERE id = :id;
