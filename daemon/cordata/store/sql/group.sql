-- Consumer groups as an operator sees and changes them.

-- name: group.names
SELECT "group" FROM consumer_group ORDER BY "group";

-- name: group.list
-- With their messages by state.
SELECT g."group", g.type, g.broker, coalesce(m.ready, 0) AS ready,
       coalesce(m.scheduled, 0) AS scheduled, coalesce(m.claimed, 0) AS claimed,
       coalesce(m.dead, 0) AS dead, g.registered_at, g.present_at
FROM consumer_group AS g
LEFT JOIN (SELECT "group", count(CASE WHEN state = 'ready' THEN 1 END) AS ready,
                  count(CASE WHEN state = 'scheduled' THEN 1 END) AS scheduled,
                  count(CASE WHEN state = 'claimed' THEN 1 END) AS claimed,
                  count(CASE WHEN state = 'dead' THEN 1 END) AS dead
           FROM message GROUP BY "group") AS m ON m."group" = g."group"
WHERE CAST(:group AS text) IS NULL OR g."group" = :group
ORDER BY g."group";

-- name: group.absent
-- Groups that no process has registered since then.
SELECT "group", present_at FROM consumer_group WHERE present_at < :before ORDER BY "group";

-- name: group.handled_types
SELECT DISTINCT type FROM consumer_group;

-- name: group.types
SELECT "group", type FROM consumer_group WHERE "group" IN (:old, :new);

-- name: group.claimed
SELECT count(*) AS count FROM message WHERE "group" = :old AND state = 'claimed';

-- name: group.marks
-- The next events that a group has handled.
SELECT event_id FROM handled WHERE "group" = :old AND event_id > :after
ORDER BY event_id LIMIT :limit;

-- name: group.copy_marks
INSERT INTO handled (event_id, "group", attempts, handled_at)
SELECT event_id, :new, attempts, handled_at FROM handled
WHERE "group" = :old AND event_id IN :event_ids[text]
ON CONFLICT DO NOTHING;

-- name: group.copy_late_marks
INSERT INTO handled (event_id, "group", attempts, handled_at)
SELECT event_id, :new, attempts, handled_at FROM handled
WHERE "group" = :old AND handled_at >= :since
ON CONFLICT DO NOTHING;

-- name: group.rename
-- If a group of the new name exists, its row stays.
INSERT INTO consumer_group ("group", type, keyed, broker, since, caught_up, registered_at,
    present_at)
SELECT :new, type, keyed, broker, since, caught_up, registered_at, :now_us FROM consumer_group
WHERE "group" = :old
ON CONFLICT ("group") DO UPDATE SET since =
    CASE WHEN excluded.since < consumer_group.since THEN excluded.since ELSE consumer_group.since END;

-- name: group.remove
DELETE FROM consumer_group WHERE "group" = :group;

-- name: group.drop_handled
-- Open messages of events that the group has handled under its other name, or has messages of there.
DELETE FROM message
WHERE "group" = :one AND state <> 'claimed' AND (
    EXISTS (SELECT 1 FROM handled AS h
            WHERE h.event_id = message.event_id AND h."group" = :other)
    OR :both = 1 AND EXISTS (SELECT 1 FROM message AS m
                             WHERE m.event_id = message.event_id AND m."group" = :other));

-- name: group.move_messages
UPDATE message SET "group" = :new WHERE "group" = :old;

-- name: group.drop_messages
DELETE FROM message WHERE "group" = :group AND event_id IN (
    SELECT event_id FROM message WHERE "group" = :group LIMIT :limit);
