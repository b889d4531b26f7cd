"""What nobody can be given any more does not wait: it keeps no person's data in the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.integration.alpinebits.hub import read_rq
from tests.integration.hub.guests import write
from tests.integration.hub.material import BOOKING, Hub, forget_directory, open_hub
from tests.integration.hub.software import READ, acknowledge, send, waiting
from tests.integration.hub.test_requests import listed, states

from alpinehub.accounts import add_account, grant, revoke, set_account_disabled
from alpinehub.customers.erasure import Reason, erase
from alpinehub.customers.search import find
from alpinehub.hotels import Unusable, set_hotel_disabled

pytestmark = pytest.mark.usefixtures("each_store")
EMAIL = "eva@example.com"


async def disable_login(hub: Hub) -> None:
    await set_account_disabled(hub.ctx.store, "demo", True)


async def revoke_login(hub: Hub) -> None:
    await revoke(hub.ctx.store, "demo", "DEMO")


async def disable_hotel(hub: Hub) -> None:
    await set_hotel_disabled(hub.ctx.store, "DEMO", True)


async def poll_with_an_old_version(hub: Hub) -> None:
    """AlpineBits 2018-10 has no form for a request without dates."""
    assert (await send(hub, READ, read_rq("DEMO"), "2018-10")).status == 200


Act = Callable[[Hub], Awaitable[None]]
#: What keeps the account from ever getting the request, and the state that the operator reads.
NOBODY: list[tuple[Act, str]] = [
    (disable_login, "disabled"),
    (revoke_login, "revoked"),
    (disable_hotel, "disabled"),
    (poll_with_an_old_version, "undeliverable"),
]
out_of_reach = pytest.mark.parametrize(
    ("act", "state"), NOBODY, ids=[act.__name__ for act, _ in NOBODY]
)


async def lead(hub: Hub) -> str:
    """A request without dates, which waits for the account `demo`."""
    return await write(hub, email=EMAIL, arrival=None, departure=None, adults=0, newsletter=True)


@out_of_reach
async def test_person_is_erased_when_no_account_can_be_given_the_request(
    tmp_path: Path, act: Act, state: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await lead(hub)
        found = await find(hub.ctx.store, email=EMAIL)
        with pytest.raises(Unusable, match="wait for hotel software: 1"):
            await erase(hub.ctx.store, found, Reason(by="test"))
        await act(hub)
        await erase(hub.ctx.store, found, Reason(by="test"))
        assert await hub.one("SELECT count(*) FROM customer") == 0


@out_of_reach
async def test_retention_ends_what_no_account_can_be_given(
    tmp_path: Path, act: Act, state: str
) -> None:
    async with open_hub(tmp_path, reservation_days=30, customer_days=365) as hub:
        await lead(hub)
        hub.harness.advance(days=400)
        await hub.harness.run_periodic("retain")
        assert await hub.one("SELECT count(*) FROM reservation") == 1  # it waits
        await act(hub)
        hub.harness.advance(days=2)
        await hub.harness.run_periodic("retain")
        assert await hub.one("SELECT count(*) FROM reservation") == 0
        assert await hub.one("SELECT count(*) FROM customer") == 0


@out_of_reach
async def test_list_says_why_a_request_does_not_wait(tmp_path: Path, act: Act, state: str) -> None:
    async with open_hub(tmp_path) as hub:
        one = await lead(hub)
        assert await listed(hub, state="waiting") == [one]
        await act(hub)
        assert await listed(hub, state="waiting") == []
        assert await listed(hub, state=state) == [one]
        assert await states(hub, one) == {"demo": state}


async def test_account_gets_what_came_meanwhile_when_it_is_enabled_again(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        first = (await hub.post(BOOKING)).id
        await set_account_disabled(store, "demo", True)
        second = (await hub.post({**BOOKING, "external_id": "n-2"})).id
        assert await states(hub, second) == {"demo": "disabled"}
        await set_account_disabled(store, "demo", False)
        forget_directory(hub.ctx)
        assert [unique_id for *_, unique_id in await waiting(hub)] == [first, second]


async def test_account_is_not_given_who_was_erased_meanwhile(tmp_path: Path) -> None:
    """Nor an empty record under the same UniqueID, which would overwrite the guest."""
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        await hub.post(BOOKING)
        await disable_login(hub)
        await erase(store, await find(store, email=EMAIL), Reason(by="test"))
        await set_account_disabled(store, "demo", False)
        forget_directory(hub.ctx)
        assert await waiting(hub) == []
        await hub.post({**BOOKING, "external_id": "n-2"})
        await revoke_login(hub)
        await erase(store, await find(store, email=EMAIL), Reason(by="test"))
        await grant(store, "demo", "DEMO")
        forget_directory(hub.ctx)
        assert await waiting(hub) == []


async def test_account_that_can_be_given_a_request_keeps_it_waiting(tmp_path: Path) -> None:
    """One of two accounts is disabled: the other one still gets it."""
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        await add_account(store, "other", "demo", ["DEMO"])
        forget_directory(hub.ctx)
        one = (await hub.post(BOOKING)).id
        await set_account_disabled(store, "demo", True)
        found = await find(store, email=EMAIL)
        with pytest.raises(Unusable, match="wait for hotel software: 1"):
            await erase(store, found, Reason(by="test"))
        assert [unique_id for *_, unique_id in await waiting(hub, user="other")] == [one]
        await acknowledge(hub, 14, one, "other")
        assert (await erase(store, found, Reason(by="test"))).requests == 1
