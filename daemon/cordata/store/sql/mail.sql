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

-- name: mail.list
-- The newest first, without what they say.
SELECT id, state, attempts, created_at,
       CASE WHEN state IN ('pending', 'sending') THEN next_at END AS next_at, sent_at, last_error
FROM mail
WHERE id < :after AND (CAST(:state AS text) IS NULL OR state = :state)
    AND created_at >= :since AND created_at < :before
ORDER BY id DESC LIMIT :limit;

-- name: mail.get
SELECT id, message_id, state, attempts, created_at, next_at, sent_at, last_error, request_id,
       "to", remaining, subject, text, html IS NOT NULL AS has_html
FROM mail WHERE id = :id;

-- name: mail.retry
-- It counts as written now: else one that was given up would be given up again.
UPDATE mail SET state = 'pending', attempts = 0, next_at = :now_us, created_at = :now_us
WHERE id = :id AND state IN ('pending', 'failed');

-- name: mail.retry_failed
UPDATE mail SET state = 'pending', attempts = 0, next_at = :now_us, created_at = :now_us
WHERE state = 'failed' AND created_at >= :since AND created_at < :before;
