"""The store takes nothing while an answer comes: what was taken is not pushed again."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path

from tests.integration.alpinebits_client.peers import Asked, scripted
from tests.integration.hub.material import SECRET, Hub
from tests.integration.push.peer import HotelSoftware, acked, book, target

from alpinehub.accounts import add_account
from alpinehub.app import app
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.sources import add_source
from cordata.testing import open_app

#: The store gives up after the first, and can be written again after the second.
GIVEN_UP_S, LOCKED_S = 1.0, 3.0


async def test_answer_is_recorded_when_the_store_is_back(tmp_path: Path) -> None:
    software = HotelSoftware()
    config = {
        "store": {"url": "sqlite:", "write_timeout_s": GIVEN_UP_S},
        "alpinehub": {"push_private": True},
    }

    async def answer(asked: Asked) -> bytes:
        [path] = tmp_path.glob("*.lock")
        lock = path.open("rb")  # of all who write
        fcntl.flock(lock, fcntl.LOCK_EX)
        asyncio.get_running_loop().call_later(LOCKED_S, lock.close)
        return software.answer(asked)

    async with open_app(app, config=config, directory=tmp_path, startup=False) as harness:
        hub = Hub(harness.ctx, harness)
        await add_hotel(hub.ctx.store, NewHotel(code="DEMO", name="Hotel Demo"))
        await add_account(hub.ctx.store, "demo", "demo", ["DEMO"])
        await add_source(hub.ctx, "DEMO", "generic", "website", SECRET)
        async with scripted(answer) as peer:
            await target(hub, "demo", peer.url)
            first = await book(hub)
            began = asyncio.get_running_loop().time()
            await hub.handle_events()
            assert asyncio.get_running_loop().time() - began > LOCKED_S, "it was not locked"
        assert software.ids == [first] and await acked(hub) == {first: True}
