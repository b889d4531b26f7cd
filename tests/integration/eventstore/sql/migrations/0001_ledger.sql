CREATE TABLE balance (
    stream TEXT    NOT NULL PRIMARY KEY,
    total  {bigint}  NOT NULL,
    count  INTEGER NOT NULL
){strict};

-- Every call of a handler that committed; nothing here keeps a second one of an event out.
CREATE TABLE note (
    id       {serial},
    position {bigint}  NOT NULL,
    stream   TEXT    NOT NULL,
    version  {bigint}  NOT NULL,
    owner    TEXT    NOT NULL,
    at       {bigint}  NOT NULL
){strict};
