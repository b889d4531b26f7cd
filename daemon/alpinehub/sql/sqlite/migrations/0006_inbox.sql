-- What became of a submission: new, changed, duplicate, test, spam. NULL: not interpreted yet, or
-- written by a program that did not say.
ALTER TABLE inbox ADD COLUMN outcome TEXT;
ALTER TABLE inbox ADD COLUMN form_id INTEGER;       -- the shape that it had
ALTER TABLE inbox ADD COLUMN handled_at INTEGER;    -- when state and outcome were decided
