-- What else an hour of a hotel is judged by.
ALTER TABLE hotel_hour ADD COLUMN duplicates INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hotel_hour ADD COLUMN errors INTEGER NOT NULL DEFAULT 0;
