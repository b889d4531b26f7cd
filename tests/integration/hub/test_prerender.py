"""What a user's version of AlpineBits cannot carry is held when it comes, not when it is read."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from tests.integration.alpinebits.hub import read_rq
from tests.integration.alpinebits.test_journey import READ, forget, send, waiting
from tests.integration.hub.material import BOOKING, Hub, open_hub
from tests.integration.hub.test_intake import DATA, arrival

from alpinehub.accounts import add_account
from alpinehub.alpinebits.call import Client
from alpinehub.alpinebits.guest import UndeliverableCode
from alpinehub.alpinebits.guest_requests import UndeliverableVersion, write_undeliverable
from alpinehub.alpinebits.protocol import PROTOCOLS
from alpinehub.intake import store_arrival, take_in
from alpinehub.requests import listing
from alpinehub.reservations import ReservationData
from cordata import Tx

pytestmark = pytest.mark.usefixtures("each_store")
LEAD = ReservationData(status="request", email="geheim@example.com", newsletter=True)


async def take(hub: Hub, data: ReservationData) -> str:
    made = await arrival(hub, data=data)
    return (await take_in(hub.ctx.store, made, now_us=hub.ctx.now_us())).reservation_id


async def trail(hub: Hub, request_id: str) -> list[tuple[str, str | None]]:
    found = await listing.find_request(hub.ctx.store, request_id)
    return [(one["event"], one["account"]) for one in found["history"]]


async def test_version_is_held_for_the_user_whose_software_cannot_have_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        for name in ("new", "never"):
            await add_account(hub.ctx.store, name, "demo", ["DEMO"])
        await forget(hub)
        await waiting(hub, "2018-10")
        await waiting(hub, "2024-10", "new")
        one = await take(hub, LEAD)
        await hub.handle_events()
        found = await listing.find_request(hub.ctx.store, one)
        states = {
            row["account"]: (row["state"], row["undeliverable_code"]) for row in found["accounts"]
        }
        assert states == {
            "demo": ("undeliverable", "no_stay"),
            "new": ("waiting", None),
            "never": ("waiting", None),
        }
        assert sorted(await trail(hub, one)) == [("received", None), ("undeliverable", "demo")]
        assert await waiting(hub, "2018-10") == []  # which is no news
        assert sorted(await trail(hub, one)) == [("received", None), ("undeliverable", "demo")]
        alerts = [r.getMessage() for r in caplog.records if hasattr(r, "ALERT")]
        assert len(alerts) == 1 and "geheim" not in caplog.text
        await take(hub, DATA)  # he tells his days: nothing is held any more
        await hub.handle_events()
        assert len(await waiting(hub, "2018-10")) == 1


async def test_version_is_rendered_as_it_is_brought_where_it_is_brought(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await waiting(hub, "2018-10")

        async def unit(tx: Tx) -> None:
            # Not to be pushed at once: nobody is there.
            target = {"url": "https://pms.example", "login": "x", "secret": b"", "packed": 0}
            await tx.execute(
                "push_set_target", account_id=1, protocol="2022-10", now_us=tx.now_us, **target
            )

        await hub.ctx.store.run(unit)
        one = await take(hub, LEAD)
        await hub.handle_events()
        found = await listing.find_request(hub.ctx.store, one)
        assert [row["undeliverable_code"] for row in found["accounts"]] == [None]


async def test_version_that_can_be_had_is_noted_and_nothing_else(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await waiting(hub, "2018-10")
        one = (await hub.post(BOOKING)).id
        await hub.handle_events()
        assert await trail(hub, one) == [("received", None)]
        assert (await send(hub, READ, read_rq("DEMO"), "2018-10")).status == 200


@pytest.mark.parametrize("each_store", ["postgres"], indirect=True)
async def test_what_is_held_undoes_no_intake_beside_it(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        held_id = await take(hub, LEAD)
        client = Client(account_id=1, protocol=PROTOCOLS["2018-10"], client_id="")
        held = UndeliverableVersion(
            reservation_id=held_id, version=1, code=UndeliverableCode.NO_STAY, text="no days"
        )
        # Another guest: he is added, and the intake has written, when the hold is marked.
        guest = msgspec.structs.replace(DATA, email="other@example.com", phone="+393330000000")
        made = await arrival(hub, data=guest, external_id="other")
        runs = Counter[str]()

        async def note(tx: Tx) -> None:
            runs["note"] += 1
            mark = {"event_id": "e", "group": "g", "attempts": 1}
            assert await tx.execute("queue.mark", **mark, now_us=tx.now_us)
            await write_undeliverable(tx, client, [held])

        async def store(tx: Tx) -> None:
            runs["store"] += 1
            await store_arrival(tx, made, None)

        await asyncio.gather(hub.ctx.store.run(note), hub.ctx.store.run(store))
        # The intake not in a batch runs twice: its deliveries need the newest state.
        assert runs == {"note": 1, "store": 2}
        assert await hub.one(
            "SELECT undeliverable_code FROM delivery WHERE undeliverable_at IS NOT NULL"
        )
