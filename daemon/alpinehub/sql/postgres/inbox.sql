-- Of PostgreSQL alone; what both stores run is in ../inbox.sql.

-- name: inbox_hold
-- newest
-- Before what it becomes is written: nobody else settles it meanwhile, nor is the hotel granted to
-- an account (accounts.py holds its sources).
SELECT i.state FROM inbox i JOIN source s ON s.id = i.source_id WHERE i.id = :id
FOR NO KEY UPDATE OF i FOR KEY SHARE OF s
