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

-- name: group.remove
DELETE FROM consumer_group WHERE "group" = :group;

-- name: group.messages
SELECT count(*) AS count FROM message WHERE "group" = :group;

-- name: group.drop_messages
DELETE FROM message WHERE "group" = :group AND event_id IN (
    SELECT event_id FROM message WHERE "group" = :group LIMIT :limit);
