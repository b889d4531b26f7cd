-- Runs of jobs: each (job, scope, period) once.

-- name: job.get
SELECT state, owner FROM job_run
WHERE job = :job AND scope = :scope AND period = :period;

-- name: job.days
-- Runs of a job that has no scopes: a few hundred rows a year, all in one range of the key.
SELECT period, state = 'done' AS done FROM job_run WHERE job = :job AND scope = '';

-- name: job.latest
-- Reads only the end of a scope's range of the key.
SELECT period, state FROM job_run WHERE job = :job AND scope = :scope
ORDER BY period DESC LIMIT 1;

-- name: job.claim
-- One row changed: this process may run it. None: another process runs it or has run it. Concurrent
-- claims wait for each other, and each sees the one before. `dead`: the id of a process that is dead.
INSERT INTO job_run (job, scope, period, state, owner, started_at)
VALUES (:job, :scope, :period, 'running', :owner, :now_us)
ON CONFLICT (job, scope, period) DO UPDATE SET
    state = 'running', owner = excluded.owner, attempts = job_run.attempts + 1,
    started_at = excluded.started_at
WHERE job_run.state = 'failed'
    OR (job_run.state = 'done' AND :force = 1)
    OR (job_run.state = 'running' AND NOT EXISTS (
        SELECT 1 FROM process AS p
        WHERE p.id = job_run.owner AND p.expires_at > :now_us AND p.id <> :dead));

-- name: job.finish
UPDATE job_run SET state = :state
WHERE job = :job AND scope = :scope AND period = :period AND state = 'running'
    AND owner = :owner;
