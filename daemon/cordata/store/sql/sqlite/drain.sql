-- Test mode.

-- name: drain.hurry
-- What waits for its next attempt is due now.
UPDATE message SET next_at = :now_us
WHERE state = 'ready' AND "group" IN (SELECT value FROM json_each(:groups))
    AND next_at > :now_us;
