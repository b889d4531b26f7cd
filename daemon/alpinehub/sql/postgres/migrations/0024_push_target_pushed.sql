-- push_hotel has it, hotel by hotel.
ALTER TABLE push_target DROP COLUMN pushed_at;
