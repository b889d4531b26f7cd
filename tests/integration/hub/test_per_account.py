"""What each account of hotel software is given, and as what: by what it was given before.

What follows from any order of polls, changes, grants and resends is in test_delivery_model.py.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.alpinebits.hub import read_rq
from tests.integration.hub.command import Run
from tests.integration.hub.guests import write
from tests.integration.hub.material import BOOKING, PRICE, Hub, forget_directory, open_hub
from tests.integration.hub.software import READ, send, take, waiting
from tests.integration.hub.test_generic import CANCEL

from alpinehub.accounts import add_account, grant, revoke
from alpinehub.customers.erasure import Reason, erase
from alpinehub.customers.search import find
from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.requests import actions, listing
from alpinehub.requests.listing import RequestFilter
from alpinehub.sources import add_source

pytestmark = pytest.mark.usefixtures("each_store")
BOOKED: dict[str, Any] = {**BOOKING, **PRICE}


async def login(hub: Hub, name: str, **more: Any) -> None:
    """A login that is new to the hotel."""
    await add_account(hub.ctx.store, name, "demo", ["DEMO"], **more)
    forget_directory(hub.ctx)


async def polled(hub: Hub, user: str = "demo") -> list[str]:
    """The ResStatus of each that waits for an account."""
    return [status for status, _, _ in await waiting(hub, user=user)]


async def selected(hub: Hub, user: str = "demo") -> list[str]:
    """The ids of all that a poll with Start gives an account."""
    given = await waiting(hub, user=user, start="2020-01-01T00:00:00Z")
    return [unique_id for _, _, unique_id in given]


async def book(hub: Hub, number: int = 1, **fields: Any) -> str:
    return (await hub.post({**BOOKED, "external_id": f"n-{number}", **fields})).id


async def cancel(hub: Hub, number: int = 1) -> None:
    assert (await hub.post({**CANCEL, "external_id": f"n-{number}"})).status == 200


async def forget_person(hub: Hub) -> None:
    found = await find(hub.ctx.store, email="eva@example.com")
    await erase(hub.ctx.store, found, Reason(by="test", force=True))


# What an account that comes later is given, and a poll with Start.


async def test_nobody_is_given_who_was_erased(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        taken = await book(hub, 1)
        await take(hub)
        await book(hub, 2)
        await forget_person(hub)
        await login(hub, "late")
        for user in ("demo", "late"):
            assert await waiting(hub, user=user) == []
            assert await selected(hub, user) == []
        assert await book(hub, 1, adults=4) == taken  # the guest writes again, and is somebody
        assert await polled(hub, "late") == ["Reserved"]
        assert await selected(hub) == [taken]


async def test_erased_request_cannot_be_sent_again(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:
        one = await book(hub)
        await take(hub)
        await forget_person(hub)
        assert "was erased" in (await run("requests", "resend", one, code=1)).err
        assert await waiting(hub) == []


async def test_withdrawn_request_is_for_no_account_that_did_not_get_it(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        got, unsent = await book(hub, 1), ""
        await take(hub)
        unsent = await book(hub, 2)
        for one in (got, unsent):
            await actions.cancel(store, one, account=None, by="eva")
        await login(hub, "late")
        assert await waiting(hub, user="late") == []
        assert await selected(hub, "late") == []
        assert await waiting(hub) == [] and await selected(hub) == [got]
        await actions.resend(store, unsent, account="late", by="eva")
        assert await selected(hub, "late") == [unsent] and await selected(hub) == [got]
        await login(hub, "another")
        assert await selected(hub, "another") == []  # sent again to one account only
        await actions.resend(store, unsent, account=None, by="eva")
        await login(hub, "later")
        assert await selected(hub, "later") == [unsent]
        assert len(await waiting(hub)) == len(await waiting(hub, user="later")) == 1


async def test_withdrawn_request_is_not_for_an_account_that_an_earlier_version_only_waited_for(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        one = await book(hub)
        await revoke(store, "demo", "DEMO")
        assert await book(hub, adults=4) == one
        await actions.cancel(store, one, account=None, by="eva")
        await grant(store, "demo", "DEMO")
        forget_directory(hub.ctx)
        assert await selected(hub) == []


async def test_stay_that_is_over_is_for_no_account_that_comes_later(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        taken = await book(hub, 1)
        await take(hub)
        waits = await book(hub, 2)
        hub.harness.advance(days=(date(2027, 2, 10) - hub.harness.now.date()).days)
        await login(hub, "late")
        assert await waiting(hub, user="late") == []
        assert await selected(hub, "late") == []
        # What was there in time for an account is not lost, however late it comes.
        assert await selected(hub) == [waits] != [taken]
        assert await polled(hub) == ["Reserved"]


async def test_stay_is_over_after_its_last_day_at_the_hotel(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        # At noon UTC it is tomorrow already at the hotel.
        hub.harness.advance(hours=(36 - hub.harness.now.hour) % 24)
        await add_hotel(store, NewHotel(code="EAST", name="East", time_zone="Pacific/Kiritimati"))
        await add_source(hub.ctx, "EAST", "generic", "web", "east-secret")
        forget_directory(hub.ctx)
        today = (hub.harness.now + timedelta(hours=14)).date()
        before = today - timedelta(days=7)

        async def say(name: str, **stay: Any) -> None:
            await write(hub, hotel="EAST", last_name=name, **{"adults": 2, **stay})

        await say("ends today", arrival=before, departure=today)
        await say("ended", arrival=before, departure=today - timedelta(days=1))
        await say("no stay", arrival=None, departure=None, adults=0, email="a@b.it")
        await add_account(store, "late", "demo", ["EAST"])
        forget_directory(hub.ctx)
        for start in ("", "2020-01-01T00:00:00Z"):
            body = (await send(hub, READ, read_rq("EAST", start), "2024-10", "late")).body.decode()
            names = re.findall("<GivenName>(.*?)</GivenName><Surname>(.*?)</Surname>", body)
            assert sorted(map(" ".join, names)) == ["ends today", "no stay"]


async def test_account_from_now_on_is_given_what_comes(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:
        old = await book(hub, 1)
        words = ("account", "add", "late", "--hotel", "DEMO", "--from-now", "--password-stdin")
        await run(*words, given="demo\n")
        forget_directory(hub.ctx)
        assert await waiting(hub, user="late") == []
        assert await selected(hub, "late") == []
        new = await book(hub, 2)
        assert await selected(hub, "late") == [new]
        await take(hub, "late")
        await book(hub, 1, adults=5)  # a change that comes now
        assert await waiting(hub, user="late") == [("Reserved", "14", old)]
        assert await selected(hub, "late") == [old, new]


async def test_grant_is_of_what_comes_or_of_all_that_nobody_has_acknowledged(
    tmp_path: Path, run: Run
) -> None:
    async with open_hub(tmp_path) as hub:
        await book(hub, 1)
        await take(hub)
        unacknowledged = await book(hub, 2)
        await add_account(hub.ctx.store, "late", "demo", [])
        await run("account", "grant", "late", "DEMO", "--from-now")
        forget_directory(hub.ctx)
        assert await waiting(hub, user="late") == []
        assert await selected(hub, "late") == []
        await revoke(hub.ctx.store, "late", "DEMO")
        meanwhile = await book(hub, 3)
        for _ in range(2):
            await grant(hub.ctx.store, "late", "DEMO")
        forget_directory(hub.ctx)
        # What another account has acknowledged is not for one that comes later.
        waits = [unique_id for *_, unique_id in await waiting(hub, user="late")]
        assert waits == [unacknowledged, meanwhile]


# As what it is given.


async def test_cancellation_is_only_for_accounts_that_were_given_the_booking(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        await login(hub, "late")
        await book(hub)
        assert await polled(hub) == ["Reserved"]  # given, not acknowledged: it may have it
        await cancel(hub)
        assert await polled(hub) == ["Cancelled"]
        assert await waiting(hub, user="late") == []
        assert await selected(hub, "late") == []
        await login(hub, "later")
        assert await waiting(hub, user="later") == []
        assert await selected(hub, "later") == []
        await take(hub)
        page = await listing.list_requests(hub.ctx.store, RequestFilter(state="waiting"))
        assert page.items == []
        [item] = (await listing.list_requests(hub.ctx.store, RequestFilter())).items
        states = {one["account"]: one["state"] for one in item["accounts"]}
        assert states == {"demo": "acknowledged", "late": "unneeded"}
        found = await find(hub.ctx.store, email="eva@example.com")
        assert (await erase(hub.ctx.store, found, Reason(by="test"))).requests == 1


async def test_cancellation_of_something_unheard_of_is_for_nobody(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.post({**BOOKING, "status": "cancelled"})
        assert await waiting(hub) == []
        assert await selected(hub) == []
