-- The queue: groups, claims, acknowledgements. Statements that differ between the dialects
-- are in sqlite/ and postgres/. core/message_state.py has the states of a message.
--
-- A claim has a number: a process that settles with an old number changes nothing. The transaction of an
-- effect marks the event as handled and deletes the message; one of a key is deleted when its handler
-- has ended, for until then the next one has to wait.

-- name: queue.register
-- A new group, and one with another type, may lack events from now on; one that comes back from Redis,
-- all. One that moves to Redis lacks nothing: a transaction sees it there, or in the store.
INSERT INTO consumer_group
    ("group", type, keyed, broker, since, lacks_after, registered_at, present_at)
VALUES (:group, :type, :keyed, :broker, :position, :position, :now_us, :now_us)
ON CONFLICT ("group") DO UPDATE SET
    type = excluded.type, keyed = excluded.keyed, broker = excluded.broker,
    lacks_after = CASE
        WHEN consumer_group.type <> excluded.type
            THEN coalesce(consumer_group.lacks_after, excluded.lacks_after)
        WHEN consumer_group.broker = 'redis' AND excluded.broker = 'store' THEN consumer_group.since
        ELSE consumer_group.lacks_after END,
    registered_at = CASE
        WHEN consumer_group.type = excluded.type AND consumer_group.broker = excluded.broker
            THEN consumer_group.registered_at
        ELSE excluded.registered_at END,
    present_at = excluded.present_at;

-- name: queue.group
SELECT type, keyed FROM consumer_group WHERE "group" = :group;

-- name: queue.mark_present
UPDATE consumer_group SET present_at = :now_us WHERE "group" IN :groups[text];

-- name: queue.catch_up
-- Events after its `lacks_after` that the group has neither handled nor will get: there is no message of
-- them for it, nor for the relay if it reads a stream, and they are in no stream. Of one page of
-- positions, so that the statement is short however many events there are.
INSERT INTO message (event_id, "group", position, key, priority, state, next_at)
SELECT e.id, g."group", e.position, CASE WHEN g.keyed THEN e.key END, e.priority,
       CASE WHEN e.due_at > :now_us THEN 'scheduled' ELSE 'ready' END, e.due_at
FROM consumer_group AS g
JOIN event AS e ON e.position > :after AND e.position <= :until AND e.position > g.lacks_after
    AND e.type = g.type
WHERE g."group" = :group AND NOT EXISTS (
        SELECT 1 FROM handled AS h WHERE h.event_id = e.id AND h."group" = g."group")
    AND NOT EXISTS (
        SELECT 1 FROM message AS m WHERE m.event_id = e.id AND m."group" = g."group")
    AND (g.broker <> 'redis' OR NOT EXISTS (
            SELECT 1 FROM message AS m WHERE m.event_id = e.id AND m."group" = 'redis')
        AND NOT EXISTS (
            SELECT 1 FROM redis_sent AS s WHERE s.event_id = e.id))
ON CONFLICT DO NOTHING;

-- name: queue.lacking
SELECT "group", lacks_after, registered_at FROM consumer_group
WHERE "group" IN :groups[text] AND lacks_after IS NOT NULL ORDER BY "group";

-- name: queue.caught_up
-- Not if it was registered with another type or broker since, even if it is as before again: then other
-- transactions may not have seen it.
UPDATE consumer_group SET lacks_after = NULL
WHERE "group" = :group AND registered_at = :registered_at;

-- name: queue.rekey
-- Enables or disables the order of keys for a group.
UPDATE message SET
    key = CASE WHEN :keyed THEN (SELECT e.key FROM event AS e WHERE e.id = message.event_id) END
WHERE "group" = :group AND state <> 'dead';

-- name: queue.next
-- When the next scheduled message is due, and whether there are suspects that can be claimed.
SELECT (SELECT next_at FROM message WHERE state = 'scheduled' ORDER BY next_at LIMIT 1) AS next_at,
       EXISTS (SELECT 1 FROM message AS m
               WHERE m.state = 'ready' AND m.suspect AND m."group" IN :groups[text]
                   AND m.next_at <= :now_us
                   AND (m.key IS NULL OR NOT EXISTS (
                       SELECT 1 FROM message AS c
                       WHERE c."group" = m."group" AND c.key = m.key AND c.key IS NOT NULL AND (
                           c.state = 'claimed' OR c.state = 'ready' AND c.position < m.position)))
              ) AS suspects;

-- name: queue.delete
-- Deletes a handled message, in the transaction of its effect.
DELETE FROM message
WHERE event_id = :event_id AND "group" = :group AND claim = :claim AND state = 'claimed';

-- name: queue.confirm
-- Checks the claim of a message of a key, in the transaction of its effect.
UPDATE message SET claim = claim
WHERE event_id = :event_id AND "group" = :group AND claim = :claim AND state = 'claimed';

-- name: queue.delete_handled
-- Deletes the messages of a process whose effects are committed.
DELETE FROM message WHERE owner = :owner AND state = 'claimed' AND EXISTS (
    SELECT 1 FROM handled AS h WHERE h.event_id = message.event_id AND h."group" = message."group");

-- name: queue.has_handled
SELECT 1 AS found FROM handled WHERE event_id = :event_id AND "group" = :group;

-- name: queue.has_claim
SELECT 1 AS found FROM message
WHERE event_id = :event_id AND "group" = :group AND claim = :claim AND state = 'claimed';

-- name: queue.mark
-- Marks an event as handled that has no row in message.
INSERT INTO handled (event_id, "group", attempts, handled_at)
VALUES (:event_id, :group, :attempts, :now_us)
ON CONFLICT DO NOTHING;

-- name: queue.retry
-- `uncounted`: attempts that do not count. A message of a key stays 'ready', so that it blocks its key.
UPDATE message SET
    state = CASE WHEN key IS NULL THEN 'scheduled' ELSE 'ready' END, next_at = :next_at,
    attempts = attempts - :uncounted, suspect = :suspect, history = :history, owner = NULL
WHERE event_id = :event_id AND "group" = :group AND claim = :claim AND state = 'claimed';

-- name: queue.make_dead
UPDATE message SET state = 'dead', dead_at = :now_us, history = :history, owner = NULL
WHERE event_id = :event_id AND "group" = :group AND claim = :claim AND state = 'claimed';

-- name: queue.make_dead_handled
-- A dead letter whose effect is committed and whose row is deleted: an operator has to check it.
INSERT INTO message (event_id, "group", position, priority, state, next_at, attempts, history,
    dead_at)
SELECT e.id, :group, e.position, e.priority, 'dead', :now_us, :attempts, :history, :now_us
FROM event AS e WHERE e.id = :event_id
ON CONFLICT DO NOTHING;

-- name: queue.give_back
-- Gives back a message that was not tried.
UPDATE message SET state = 'ready', attempts = attempts - 1, owner = NULL
WHERE event_id = :event_id AND "group" = :group AND claim = :claim AND state = 'claimed';

-- name: queue.held
SELECT event_id, "group", claim, attempts, suspect, history FROM message
WHERE owner = :owner AND state = 'claimed';

-- name: queue.reclaim
-- Gives back all claims of a dead process. The relay runs no handler, so its messages are not suspect;
-- but their attempt counts, for it may have added the event to the stream already.
UPDATE message SET
    state = 'ready', attempts = attempts - CASE WHEN "group" = 'redis' THEN 0 ELSE 1 END,
    suspect = "group" <> 'redis', next_at = :now_us, owner = NULL
WHERE owner = :owner AND state = 'claimed';

-- name: queue.owners
-- Processes that have claimed messages, living or dead; there are few.
SELECT DISTINCT owner FROM message WHERE state = 'claimed';

-- name: queue.hurry
-- Makes messages due now that wait for a retry.
UPDATE message SET next_at = :now_us
WHERE "group" IN :groups[text] AND attempts > 0 AND state IN ('ready', 'scheduled')
    AND next_at > :now_us;
