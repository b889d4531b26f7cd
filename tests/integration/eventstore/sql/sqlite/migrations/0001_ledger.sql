CREATE TABLE balance (
    stream TEXT    NOT NULL PRIMARY KEY,
    total  INTEGER NOT NULL,
    count  INTEGER NOT NULL
) STRICT;

-- Every call of a handler that committed; nothing here keeps a second one of an event out.
CREATE TABLE note (
    id       INTEGER PRIMARY KEY,
    position INTEGER NOT NULL,
    stream   TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    owner    TEXT    NOT NULL,
    at       INTEGER NOT NULL
) STRICT;
