-- Since when a login may come again after it was disabled: it is not called silent before.
ALTER TABLE account ADD COLUMN enabled_at BIGINT;
