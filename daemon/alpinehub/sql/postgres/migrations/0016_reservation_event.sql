-- What else there is to say of an event: JSON; nothing that a guest wrote.
ALTER TABLE reservation_history ADD COLUMN detail TEXT;
