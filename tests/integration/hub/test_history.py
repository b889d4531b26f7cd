"""The history of a guest request, as it is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.integration.hub.guests import write
from tests.integration.hub.material import open_hub

from alpinehub import history
from cordata import Tx, request_id

pytestmark = pytest.mark.usefixtures("each_store")


async def test_history_takes_entries_with_and_without_a_detail(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        id_ = await write(hub, email="eva@example.com")
        row = history.HistoryEntry(reservation_id=id_, version=1, event="undeliverable")
        other = replace(row, event="sent", account_id=1, detail={"by": "ö"}, request_id="r-7")

        async def unit(tx: Tx) -> int:
            await history.add(tx, row, other)
            return tx.now_us

        token = request_id.set("r-1")
        try:
            now_us = await hub.ctx.store.run(unit)
        finally:
            request_id.reset(token)
        rows = await hub.rows(
            "SELECT event, account_id, detail, at, request_id FROM reservation_history"
            " WHERE event <> 'received' ORDER BY id"
        )
        assert [tuple(one.values()) for one in rows] == [
            ("undeliverable", None, None, now_us, "r-1"),
            ("sent", 1, '{"by":"ö"}', now_us, "r-7"),
        ]
