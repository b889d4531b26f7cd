-- What made no reservation: few, and counted for each day's report.
CREATE INDEX inbox_outcome ON inbox (source_id, received_at)
    WHERE outcome IN ('duplicate', 'test', 'spam');
