-- Consumer groups as an operator sees and changes them.

-- name: group.names
SELECT "group" FROM consumer_group ORDER BY "group";

-- name: group.absent
-- Groups that no process has registered since then.
SELECT "group", present_at FROM consumer_group WHERE present_at < :before ORDER BY "group";

-- name: group.handled_types
SELECT DISTINCT type FROM consumer_group;

-- name: group.remove
DELETE FROM consumer_group WHERE "group" = :group;

-- name: group.messages
SELECT count(*) AS count FROM message WHERE "group" = :group;

-- name: group.drop_messages
DELETE FROM message WHERE "group" = :group AND event_id IN (
    SELECT event_id FROM message WHERE "group" = :group LIMIT :limit);
