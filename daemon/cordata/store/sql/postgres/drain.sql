-- Test mode.

-- name: drain.hurry
-- What waits for its next attempt is due now.
UPDATE message SET next_at = :now_us
WHERE state = 'ready' AND "group" = ANY (ARRAY(SELECT json_array_elements_text(:groups::json)))
    AND next_at > :now_us;
