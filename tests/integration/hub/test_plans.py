"""No statement of the hot paths reads more than what it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.integration.hub.material import BOOKING, open_hub
from tests.raw import raw

from alpinehub.app import app
from cordata import Row, Tx
from cordata.store import Queries

#: Statement and the index it must use.
HOT = (
    ("idempotency.get", "PRIMARY KEY"),
    ("find_reservation", "reservation_external"),
    ("find_customer", "customer_email"),
    ("find_customer", "customer_phone (hotel_id=? AND phone=? AND email=?)"),
    ("find_customer_by_phone", "customer_phone"),
    ("update_reservation", "PRIMARY KEY"),
    ("end_waiting", "PRIMARY KEY"),
    ("fan_out", "user_hotel_hotel"),
    ("waiting_reservations", "delivery_waiting"),
    ("selected_reservations", "reservation_created"),
    ("hour_changes", "hour_change"),
    ("forget_changes", "INTEGER PRIMARY KEY"),
)


@pytest.mark.parametrize(("name", "index"), HOT)
async def test_statement_uses_its_index(tmp_path: Path, name: str, index: str) -> None:
    query = Queries.load(app.query_packages, "sqlite").by_name[name]

    async with open_hub(tmp_path) as hub:
        await hub.post(BOOKING)

        async def unit(tx: Tx) -> list[Row]:
            explained = f"EXPLAIN QUERY PLAN {query.sql}"
            return await raw(tx, explained, query.bind(dict.fromkeys(query.params)))

        plan: list[Any] = [row["detail"] for row in await hub.ctx.store.read(unit)]
        assert any(index in step for step in plan), plan
        scanned = {step.split()[1] for step in plan if step.startswith("SCAN")}
        assert not scanned & {"reservation", "customer", "delivery", "r", "d", "v"}, plan


async def test_waiting_list_is_read_by_the_partial_index_alone(tmp_path: Path) -> None:
    """What waits is in the index delivery_waiting, and nothing else is: its size is what waits."""
    async with open_hub(tmp_path) as hub:
        for number in range(20):
            await hub.post({**BOOKING, "external_id": "n-1", "adults": 1 + number})
        assert await hub.one("SELECT count(*) FROM delivery") == 20
        indexed = "SELECT count(*) FROM delivery INDEXED BY delivery_waiting"
        assert await hub.one(f"{indexed} WHERE waiting = 1 AND user_id = 1") == 1
