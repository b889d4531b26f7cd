-- For `cordata status`.

-- name: status.groups
-- due_at: since when the oldest message that is due waits.
SELECT g."group", g.broker, g.present_at, coalesce(m.ready, 0) AS ready,
       coalesce(m.scheduled, 0) AS scheduled, coalesce(m.claimed, 0) AS claimed,
       coalesce(m.retrying, 0) AS retrying, coalesce(m.dead, 0) AS dead, m.due_at
FROM consumer_group AS g
LEFT JOIN (SELECT "group", count(CASE WHEN state = 'ready' THEN 1 END) AS ready,
                  count(CASE WHEN state = 'scheduled' THEN 1 END) AS scheduled,
                  count(CASE WHEN state = 'claimed' THEN 1 END) AS claimed,
                  count(CASE WHEN state IN ('ready', 'scheduled') AND attempts > 0 THEN 1 END)
                      AS retrying,
                  count(CASE WHEN state = 'dead' THEN 1 END) AS dead,
                  min(CASE WHEN state IN ('ready', 'scheduled') AND next_at <= :now_us
                           THEN next_at END) AS due_at
           FROM message GROUP BY "group") AS m ON m."group" = g."group"
ORDER BY g."group";

-- name: status.blocked
SELECT subscription, count(*) AS count FROM subscription_partition
WHERE blocked_at IS NOT NULL GROUP BY subscription ORDER BY subscription;

-- name: status.jobs
-- The last run of each job.
SELECT r.job, r.scope, r.period, r.state, r.attempts, r.started_at
FROM job_run AS r
JOIN (SELECT job, max(started_at) AS started_at FROM job_run GROUP BY job) AS l
    ON l.job = r.job AND l.started_at = r.started_at
ORDER BY r.job, r.scope;

-- name: status.mail
SELECT count(*) AS waiting, min(created_at) AS oldest_at FROM mail
WHERE state IN ('pending', 'sending');

-- name: status.failed_mail
-- The first condition is that of the index by age.
SELECT count(*) AS count FROM mail
WHERE state IN ('sent', 'failed') AND state = 'failed' AND created_at > :since;

-- name: status.alerts
SELECT title, count, last_at FROM alert WHERE last_at > :since
ORDER BY last_at DESC, fingerprint LIMIT :limit;

-- name: status.primary
SELECT holder, term, acquired_at, released_at FROM lease WHERE name = 'primary';
