-- Errors by kind: what happened how often, and how much of it was told by mail.

CREATE TABLE alert (
    fingerprint TEXT NOT NULL PRIMARY KEY,
    cause       TEXT NOT NULL,
    title       TEXT NOT NULL,
    sample      TEXT NOT NULL,
    place       TEXT NOT NULL,
    urgent      INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    -- Of them, not told yet; since_at is the first of these.
    pending     INTEGER NOT NULL,
    first_at    INTEGER NOT NULL,
    last_at     INTEGER NOT NULL,
    since_at    INTEGER NOT NULL,
    -- When the last mail about it was written, and its message_id.
    mailed_at   INTEGER,
    mail_id     TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX alert_pending ON alert (since_at) WHERE pending > 0;

-- When mails were written, for the limit of an hour.
CREATE TABLE alert_mail (
    id         INTEGER PRIMARY KEY,
    written_at INTEGER NOT NULL
) STRICT;
