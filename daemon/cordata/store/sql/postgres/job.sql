-- Of PostgreSQL alone; what both stores run is in ../job.sql.

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
