-- The password before the last rotation: still taken until before_until.
ALTER TABLE hotel_user ADD COLUMN password_before TEXT;
ALTER TABLE hotel_user ADD COLUMN before_until INTEGER;
