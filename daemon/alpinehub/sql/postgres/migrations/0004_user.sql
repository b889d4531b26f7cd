-- The password before the last rotation: still taken until before_until.
ALTER TABLE account ADD COLUMN password_before TEXT;
ALTER TABLE account ADD COLUMN before_until BIGINT;
