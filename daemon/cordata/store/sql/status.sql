-- For `cordata status`, with the bounded counts of metrics.sql.

-- name: status.blocked
-- Of each subscription: count() leaves out NULL.
SELECT subscription, count(blocked_at) AS count FROM subscription_partition
GROUP BY subscription ORDER BY subscription;

-- name: status.jobs
-- The last run of each job.
SELECT r.job, r.scope, r.period, r.state, r.attempts, r.started_at
FROM job_run AS r
JOIN (SELECT job, max(started_at) AS started_at FROM job_run GROUP BY job) AS l
    ON l.job = r.job AND l.started_at = r.started_at
ORDER BY r.job, r.scope;

-- name: status.failed_mail
-- The first condition is that of the index by age.
SELECT count(*) AS count FROM mail
WHERE state IN ('sent', 'failed') AND state = 'failed' AND created_at > :since;

-- name: status.primary
SELECT holder, term, acquired_at, released_at FROM lease WHERE name = 'primary';

-- name: status.waiting_mails
SELECT id, state, attempts, created_at, next_at, last_error FROM mail
WHERE state IN ('pending', 'sending') ORDER BY next_at, id LIMIT :limit;

-- name: status.failed_mails
-- As status.failed_mail counts them, the newest first.
SELECT id, state, attempts, created_at, NULL AS next_at, last_error FROM mail
WHERE state IN ('sent', 'failed') AND state = 'failed' AND created_at > :since
ORDER BY created_at DESC LIMIT :limit;
