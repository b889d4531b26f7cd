"""Logins: who may in, what it costs, how soon a change counts."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.integration.hub.material import BOOKING, SECRET, open_hub
from tests.waiting import until_async

from alpinehub import login
from alpinehub.accounts import add_account, revoke, set_account_disabled, set_password
from alpinehub.directory import TRUST_S
from alpinehub.hotels import NewHotel, Unusable, add_hotel, set_hotel_disabled
from alpinehub.login import authenticate
from alpinehub.passwords import verify_password
from alpinehub.sources import add_source, set_secret, set_source_disabled

on_each_store = pytest.mark.usefixtures("each_store")
#: What is promised: a change counts in every worker within two seconds.
PROMISED_S = 2.0


async def within_promise(holds: Callable[[], Awaitable[bool]]) -> None:
    assert TRUST_S < PROMISED_S
    await until_async(holds)


@on_each_store
async def test_account_is_let_in_when_password_is_right(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        account = await authenticate(hub.ctx, "demo", "demo")
        assert account is not None and account.name == "demo"
        assert [hotel.code for hotel in account.hotels] == ["DEMO"]
        assert account.hotel("DEMO") is account.hotels[0] and account.hotel("OTHER") is None
        for name, password in (("demo", "Demo"), ("demo", ""), ("Demo", "demo"), ("", "")):
            assert await authenticate(hub.ctx, name, password) is None


async def test_password_is_computed_once_when_many_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []

    def counting(password: str, stored: str) -> bool:
        computed.append(password)
        return verify_password(password, stored)

    monkeypatch.setattr(login, "verify_password", counting)
    async with open_hub(tmp_path) as hub:
        everyone = await asyncio.gather(
            *(authenticate(hub.ctx, "demo", "demo") for _ in range(20)),
            *(authenticate(hub.ctx, "demo", "wrong") for _ in range(20)),
            *(authenticate(hub.ctx, "nobody", "demo") for _ in range(20)),
        )
        assert [account is not None for account in everyone] == [True] * 20 + [False] * 40
        # An unknown user costs what a wrong password costs: one computation each.
        assert sorted(computed) == ["demo", "demo", "wrong"]


async def test_memory_of_passwords_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "verify_password", lambda password, stored: True)
    memory = login.LoginCache()
    for number in range(login.REMEMBER_MAX + 10):
        assert await memory.verify("user", str(number), "stored", queue="user")
    assert len(memory._answers[True]) == login.REMEMBER_MAX
    assert not memory._asking and not memory._queues


async def test_right_password_stays_remembered_when_many_wrong_ones_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[str] = []

    def verify(password: str, stored: str) -> bool:
        computed.append(password)
        return password == "right"

    monkeypatch.setattr(login, "verify_password", verify)
    memory = login.LoginCache()
    assert await memory.verify("user", "right", "stored", queue="user")
    for number in range(login.REMEMBER_MAX + 10):
        assert not await memory.verify(
            f"user {number}", "wrong", "stored", queue="", address=f"{number}"
        )
    assert await memory.verify("user", "right", "stored", queue="user")
    assert computed.count("right") == 1


async def test_account_gets_in_soon_when_others_guess_passwords(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def verify(password: str, stored: str) -> bool:
        order.append(password)
        return password == "right"

    monkeypatch.setattr(login, "verify_password", verify)
    memory = login.LoginCache()
    async with asyncio.TaskGroup() as group:
        guesses = [
            group.create_task(guess(memory, str(number), queue))
            for number in range(100)
            for queue in ("", "other")
        ]
        await asyncio.sleep(0)  # all of them have asked
        assert await memory.verify("user", "right", "stored", queue="user")
        assert order.index("right") <= 4
    # What can be computed soon is, and the others are told to come again.
    refused = [task.result() for task in guesses].count(None)
    assert refused == 2 * (100 - login._OF_BOTH[0])
    assert not memory._asking and not memory._queues


async def guess(memory: login.LoginCache, password: str, queue: str) -> bool | None:
    try:
        return await memory.verify(queue, password, "stored", queue=queue)
    except login.TooManyLogins:
        return None


async def test_memory_of_a_process_goes_with_its_store(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        assert await authenticate(hub.ctx, "demo", "demo") is not None
        store = weakref.ref(hub.ctx.store)
    del hub
    gc.collect()
    assert store() is None


@on_each_store
async def test_change_of_an_account_counts_in_another_process_within_promise(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:

        async def opens(password: str, opened: bool = True) -> bool:
            return (await authenticate(hub.ctx, "demo", password) is not None) == opened

        assert await opens("demo")
        await set_password(other.ctx.store, "demo", "new")
        await within_promise(lambda: opens("demo", False))
        assert await opens("new")
        await set_account_disabled(other.ctx.store, "demo", True)
        await within_promise(lambda: opens("new", False))
        await set_account_disabled(other.ctx.store, "demo", False)
        await within_promise(lambda: opens("new"))


@on_each_store
async def test_change_of_a_source_counts_in_another_process_within_promise(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub, open_hub(tmp_path, seed=False) as other:

        async def answers(status: int, secret: str = SECRET) -> bool:
            answer = await hub.post(BOOKING, headers={"x-webhook-secret": secret})
            return answer.status == status

        assert await answers(200)
        await set_secret(other.ctx, "DEMO", "website", "rotated")
        await within_promise(lambda: answers(401))
        assert await answers(200, "rotated")
        await set_source_disabled(other.ctx.store, "DEMO", "website", True)
        await within_promise(lambda: answers(401, "rotated"))
        await set_source_disabled(other.ctx.store, "DEMO", "website", False)
        await within_promise(lambda: answers(200, "rotated"))
        await set_hotel_disabled(other.ctx.store, "DEMO", True)
        await within_promise(lambda: answers(401, "rotated"))


@on_each_store
async def test_administration_refuses_with_the_nearest_name(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        store = hub.ctx.store
        for attempt, words in (
            (add_hotel(store, NewHotel(code="DEMO", name="x")), "exists already"),
            (add_hotel(store, NewHotel(code="x" * 17, name="")), "1 to 16"),
            (add_hotel(store, NewHotel(code="X", name="x", time_zone="../x")), "not known"),
            (add_account(store, "demo", "x", []), "exists already"),
            (add_account(store, "a:b", "x", []), "colon"),
            (add_account(store, "a", "", []), "characters"),
            (add_account(store, "a", "x", ["DEMO", "DEM"]), "no hotel"),
            (set_password(store, "demi", "x"), "no account"),
            (add_source(hub.ctx, "DEMO", "generic", "website", "x"), "already"),
            (add_source(hub.ctx, "DEMO", "generic", "other", SECRET), "has this secret"),
            (add_source(hub.ctx, "DEMO", "fax", "other", "x"), "no kind"),
            (add_source(hub.ctx, "DEMO", "generic", "other", "ä"), "ASCII"),
            (set_secret(hub.ctx, "DEMO", "web", "x"), "no source"),
            (revoke(store, "demo", "DEMO"), None),
            (revoke(store, "demo", "DEMO"), "does not read"),
        ):
            if words is None:
                await attempt
                continue
            with pytest.raises(Unusable, match=words):
                await attempt
        assert await hub.one("SELECT count(*) FROM account") == 1
