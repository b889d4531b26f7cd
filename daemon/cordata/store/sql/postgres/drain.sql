-- Test mode.

-- name: drain.hurry
-- What waits for its next attempt is due now.
UPDATE message SET next_at = :now_us
WHERE state = 'ready' AND "group" = ANY (ARRAY(SELECT json_array_elements_text(:groups::json)))
    AND next_at > :now_us;

-- name: drain.refused
-- Whether the broker has refused something that is to be tried again later.
SELECT 1 AS found FROM outbox
WHERE state IN ('pending', 'failed') AND attempts > 0 AND next_at > :now_us LIMIT 1;

-- name: drain.hurry_refused
-- It is tried again now.
UPDATE outbox SET next_at = :now_us
WHERE state IN ('pending', 'failed') AND attempts > 0 AND next_at > :now_us;
