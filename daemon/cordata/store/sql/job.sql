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

-- name: job.renew
UPDATE job_run SET claimed_until = :claimed_until
WHERE job = :job AND scope = :scope AND period = :period AND state = 'running'
    AND owner = :owner;

-- name: job.finish
UPDATE job_run SET state = :state, last_error = :last_error, finished_at = :now_us
WHERE job = :job AND scope = :scope AND period = :period AND state = 'running'
    AND owner = :owner;
