-- No key: an event that is handled twice is here twice.
CREATE TABLE effect (event_id {text} NOT NULL, number INTEGER NOT NULL);
