-- Runs of jobs: each (job, scope, period) once.

-- name: job.get
SELECT state, owner, claimed_until FROM job_run
WHERE job = :job AND scope = :scope AND period = :period;

-- name: job.days
-- Runs of a job that has no scopes: a few hundred rows a year, all in one range of the key.
SELECT period, state = 'done' AS done FROM job_run WHERE job = :job AND scope = '';

-- name: job.latest
-- One look at the end of a scope's range of the key.
SELECT period, state FROM job_run WHERE job = :job AND scope = :scope
ORDER BY period DESC LIMIT 1;

-- name: job.claim
-- One row changed: it is ours. Else somebody runs it, or has run it. Of several who claim at once
-- each waits for the one before and then sees its claim.
INSERT INTO job_run (job, scope, period, state, owner, claimed_until, started_at)
VALUES (:job, :scope, :period, 'running', :owner, :claimed_until, :now_us)
ON CONFLICT (job, scope, period) DO UPDATE SET
    state = 'running', owner = excluded.owner, claimed_until = excluded.claimed_until,
    attempts = job_run.attempts + 1, started_at = excluded.started_at, finished_at = NULL
WHERE job_run.state = 'failed'
    OR (job_run.state = 'done' AND :force::integer <> 0)
    OR (job_run.state = 'running'
        AND (job_run.claimed_until < :now_us OR job_run.owner = :dead_owner));

-- name: job.renew
UPDATE job_run SET claimed_until = :claimed_until
WHERE job = :job AND scope = :scope AND period = :period AND state = 'running'
    AND owner = :owner;

-- name: job.finish
UPDATE job_run SET state = :state, last_error = :last_error, finished_at = :now_us
WHERE job = :job AND scope = :scope AND period = :period AND state = 'running'
    AND owner = :owner;
