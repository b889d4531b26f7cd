-- name: account.add
INSERT INTO account (id, balance) VALUES (:id, :balance);

-- name: account.add_once
INSERT INTO account (id, balance) VALUES (:id, :balance) ON CONFLICT DO NOTHING;

-- name: account.change
UPDATE account SET balance = balance + :amount WHERE id = :id;

-- name: account.get
SELECT id, balance FROM account WHERE id = :id;

-- name: account.get_to_change
-- newest
SELECT id, balance FROM account WHERE id = :id{| FOR UPDATE};

-- name: account.all
SELECT id, balance FROM account ORDER BY id;

-- name: account.take
UPDATE account SET balance = balance - :amount WHERE id = :id RETURNING balance;

-- name: entry.add
INSERT INTO entry (account_id, amount, note) VALUES (:account_id, :amount, :note);

-- name: entry.add_to_account
-- Nothing where there is no such account.
INSERT INTO entry (account_id, amount, note)
WITH new (account_id, amount, note) AS (VALUES :row(account_id, amount, note))
SELECT a.id, CAST(new.amount AS BIGINT), new.note
FROM new JOIN account a ON a.id = new.account_id;

-- name: entry.count
SELECT count(*) AS count FROM entry;

-- name: entry.notes
SELECT note FROM entry ORDER BY note;

-- name: event.rows
SELECT id, type, key, priority, payload, headers, due_at, created_at
FROM event ORDER BY position;

-- name: mail.mails
SELECT message_id, "to", subject, text, html, state FROM mail ORDER BY id;

-- name: forever
-- On PostgreSQL it waits instead of computing: the other tests need the processor.
{WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n
|SELECT pg_sleep(3600) IS NULL AS never};

-- name: slow
-- Some ten million steps: far over what a read may take on the loop.
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 1000000)
SELECT count(*) AS count FROM n;

-- name: pause
-- A few milliseconds: over what a read may take on the loop.
WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000)
SELECT count(*) AS count FROM n;

-- name: lost.add
INSERT INTO lost (id) VALUES (:id);

-- name: account.lost
SELECT colour FROM account WHERE id = :id;

-- name: account.misspelt
SELEKT id FROM account;

-- name: account.set
UPDATE account SET balance = :balance WHERE id = :id;

-- name: account.get_to_share
-- newest
SELECT id, balance FROM account WHERE id = :id{| FOR SHARE};

-- name: account.set_from
UPDATE account SET balance = :new WHERE id = :id AND balance = :old;

-- name: promise.add
INSERT INTO promise (account_id) VALUES (:account_id);
