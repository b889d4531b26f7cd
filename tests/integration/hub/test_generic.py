"""POST /api/webhook/generic on a real store."""

from __future__ import annotations

from pathlib import Path

from tests.integration.hub.material import BOOKING, PRICE, open_hub


async def test_generic_stores_everything_in_one_unit_when_payload_is_good(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        answer = await hub.post(BOOKING)
        assert answer.status == 200
        assert answer.headers[b"content-type"] == b"application/json"
        assert list(answer.json) == ["id"] and len(answer.id) == 32
        [reservation] = await hub.rows("SELECT * FROM reservation")
        assert reservation["id"] == answer.id and reservation["version"] == 1
        [version] = await hub.rows("SELECT * FROM reservation_version")
        assert version["res_status"] == "Requested" and version["request_id"] == "r-1"
        [inbox] = await hub.rows("SELECT * FROM inbox")
        assert inbox["reservation_id"] == answer.id and inbox["state"] == "mapped"
        assert SECRET_MARK not in str(inbox)
        [customer] = await hub.rows("SELECT * FROM customer")
        assert (customer["email"], customer["phone"]) == ("eva@example.com", "+393331234567")
        [delivery] = await hub.rows("SELECT * FROM delivery")
        assert delivery["waiting"] == 1 and delivery["unique_id_type"] == 14
        [event] = await hub.rows("SELECT * FROM outbox")
        assert event["type"] == "reservation.received" and "eva" not in str(event)


SECRET_MARK = "demo-secret"
_ = PRICE
