-- What a copy has to get right: all types, foreign keys, unique values, a trigger, generated columns.
CREATE TABLE parent (
    id {serial},
    name {text} NOT NULL UNIQUE,
    note TEXT,
    score {REAL|DOUBLE PRECISION},
    active {boolean} NOT NULL DEFAULT {false},
    small INTEGER,
    tail {text} GENERATED ALWAYS AS ({substr(name, -2)|right(name, 2)}) STORED
){strict};

-- A row points to one whose table comes later.
CREATE TABLE child (
    kind {text} NOT NULL,
    number {bigint} NOT NULL,
    done {boolean} NOT NULL,
    parent_id {bigint} NOT NULL REFERENCES parent (id),
    data {bytes},
    PRIMARY KEY (kind, number, done)
){keyed};

-- Rows of triggers: a copy makes none.
CREATE TABLE trace (id {serial}, kind TEXT NOT NULL){strict};
{CREATE TRIGGER child_trace AFTER INSERT ON child BEGIN
    INSERT INTO trace (kind) VALUES (new.kind);
END;|CREATE FUNCTION child_trace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO trace (kind) VALUES (new.kind);
    RETURN new;
END $$;
CREATE TRIGGER child_trace AFTER INSERT ON child FOR EACH ROW EXECUTE FUNCTION child_trace();}
