-- name: history_add_once
INSERT INTO reservation_event (reservation_id, version, event, account_id, at, request_id, detail)
SELECT CAST(:reservation_id AS TEXT), CAST(:version AS INTEGER), CAST(:event AS TEXT), CAST(:account_id AS BIGINT), CAST(:at AS BIGINT), CAST(:request_id AS TEXT),
       CAST(:detail AS TEXT)
FROM reservation r WHERE r.id = :reservation_id AND NOT EXISTS (
    SELECT 1 FROM reservation_event e
    WHERE e.reservation_id = :reservation_id AND e.version = :version AND e.event = :event
      AND e.account_id = :account_id AND e.detail = :detail)

-- name: history_add_for_each
-- :versions is [[reservation id, version], ...].
INSERT INTO reservation_event (reservation_id, version, event, account_id, at, request_id, detail)
SELECT j.value ->> 0, {j.value ->> 1|(j.value ->> 1)::integer}, CAST(:event AS TEXT), CAST(:account_id AS BIGINT),
       CAST(:at AS BIGINT), CAST(:request_id AS TEXT), CAST(:detail AS TEXT)
FROM {json_each(:versions) AS j|json_array_elements(:versions::json) AS j (value)}
