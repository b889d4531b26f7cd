-- Forms that a robot filled in: nothing else is kept of them.
ALTER TABLE hotel_hour ADD COLUMN spam INTEGER NOT NULL DEFAULT 0;
-- As in hotel_hour.
ALTER TABLE hour_change ADD COLUMN spam INTEGER NOT NULL DEFAULT 0;
