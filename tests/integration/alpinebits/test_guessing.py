"""Whoever guesses passwords is slowed down, named and told of; the right user gets in meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import httpx
import pytest
from tests.integration.alpinebits.hotel_data import entry, push_rooms
from tests.integration.alpinebits.hub import (
    NAMESPACE,
    PASSWORD,
    Hub,
    open_hub,
    open_worker,
    read_rq,
)
from tests.integration.hub.material import forget_directory
from tests.unit.alpinebits.free_rooms import DZ

from alpinehub import login
from alpinehub.accounts import add_account, revoke, set_account_disabled, set_password

READ = "OTA_Read:GuestRequests"
GUESSER, OTHER = "203.0.113.7", "198.51.100.1"
#: The action and document that tell the status of a guest request.
RESERVED = (
    "OTA_HotelResNotif:GuestRequests_StatusUpdate",
    f'<OTA_HotelResNotifRQ xmlns="{NAMESPACE}" Version="1.000"><HotelReservations>'
    '<HotelReservation CreateDateTime="2026-01-01T10:00:00Z" ResStatus="Reserved">'
    '<UniqueID Type="14" ID="a1"/></HotelReservation></HotelReservations></OTA_HotelResNotifRQ>',
)


async def log_in(
    hub: Hub, user: str, password: str, address: str = GUESSER, hotel: str = "H1"
) -> int:
    """The status of a poll from an address."""
    async with calling_from(hub, address) as there:
        answer = await there.client.post(
            "/api/alpinebits",
            files={"action": (None, READ), "request": (None, read_rq(hotel))},
            auth=httpx.BasicAuth(user, password),
            headers={"X-AlpineBits-ClientProtocolVersion": "2024-10"},
        )
    if answer.status_code == 429:
        assert answer.text.startswith("ERROR:") and int(answer.headers["retry-after"]) >= 1
    return answer.status_code


@asynccontextmanager
async def calling_from(hub: Hub, address: str) -> AsyncIterator[Hub]:
    """The hub, as a client at an address calls it."""
    app = hub.client._transport.app  # type: ignore[attr-defined]
    transport = httpx.ASGITransport(app=app, client=(address, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://hub") as client:
        yield Hub(hub.ctx, client)


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a test takes, nobody has earned another guess meanwhile. The time is a whole
    number: the sum of ten times six seconds and a fraction may be a trillionth more than a minute.
    """
    now = float(int(monotonic()))
    monkeypatch.setattr(login, "monotonic", lambda: now)


@contextmanager
def hashes() -> Iterator[list[str]]:
    """The computations of a password's hash, in all threads that begin meanwhile."""
    counted: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and getattr(arg, "__name__", "") == "scrypt":
            counted.append("scrypt")

    threading.setprofile(note)
    try:
        yield counted
    finally:
        threading.setprofile(None)


def alerts(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [vars(record).get("ALERT", "") for record in caplog.records]
    return [one for one in found if one]


async def test_right_account_gets_in_while_a_hundred_guess_its_password(tmp_path: Path) -> None:
    """From an address of its own, and with a password that this worker has never seen."""
    async with open_hub(tmp_path) as hub:
        async with asyncio.TaskGroup() as group:
            guesses = [group.create_task(log_in(hub, "u1", f"guess {n}")) for n in range(100)]
            await asyncio.sleep(0)
            assert [await log_in(hub, "u1", PASSWORD, OTHER) for _ in range(16)] == [200] * 16
        said = Counter(task.result() for task in guesses)
        assert set(said) == {401, 429} and said[401] <= 20


async def test_account_that_is_remembered_gets_in_from_the_address_of_the_guesser(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        assert await log_in(hub, "u1", PASSWORD) == 200
        assert 429 in [await log_in(hub, "u1", f"guess {number}") for number in range(30)]
        assert await log_in(hub, "u1", PASSWORD) == 200


async def test_many_accounts_get_in_at_once_from_one_address(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restart behind a proxy that is not trusted."""
    async with open_hub(tmp_path) as hub:
        names = [f"pms{number}" for number in range(120)]
        for name in names:
            await hub.add_account(name, 1)
        forget_directory(hub.ctx)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(log_in(hub, name, PASSWORD)) for name in names]
        assert Counter(task.result() for task in tasks) == {200: 120}
        assert alerts(caplog) == []


@pytest.mark.parametrize("user", ["u1", "nobody"])
async def test_guesses_are_few_and_alike_whether_the_account_exists(
    tmp_path: Path, user: str
) -> None:
    async with open_hub(tmp_path) as hub:
        with hashes() as computed:
            said = [await log_in(hub, user, f"guess {number}") for number in range(40)]
        assert said[:10] == [401] * 10 and said.count(401) <= 20
        assert len(computed) == said.count(401)
        # A name is guessed at from everywhere, too.
        said = [await log_in(hub, user, f"guess {n}", f"192.0.2.{n}") for n in range(150)]
        assert 60 <= said.count(401) <= 130 and said[0] == 401


@pytest.mark.usefixtures("each_store")
async def test_guesses_from_everywhere_do_not_keep_the_hotel_software_out_after_a_restart(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub:
        assert await log_in(hub, "u1", PASSWORD, OTHER) == 200
    async with open_worker(tmp_path) as hub:
        said = [await log_in(hub, "u1", f"guess {n}", f"192.0.2.{n}") for n in range(110)]
        assert said[-1] == 429
        assert await log_in(hub, "u1", PASSWORD, "192.0.2.200") == 429
        assert await log_in(hub, "u1", PASSWORD, OTHER) == 200


@pytest.mark.usefixtures("each_store")
@pytest.mark.parametrize("what", ["free rooms", "status"])
async def test_guesses_do_not_keep_out_the_software_that_only_sends(
    tmp_path: Path, what: str
) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.add(1, "a1")
        async with calling_from(hub, OTHER) as software:
            if what == "status":
                answer = await software.post("u1", *RESERVED)
            else:
                answer = await push_rooms(software, entry(DZ), complete=True)
            assert "<Success/>" in answer.text
        [contact] = await hub.execute("SELECT * FROM contact")
        assert contact["called_at"] and not (contact["polled_at"] or contact["acked_at"])
    async with open_worker(tmp_path) as hub:
        said = [await log_in(hub, "u1", f"guess {n}", f"192.0.2.{n}") for n in range(110)]
        assert said[-1] == 429
        assert await log_in(hub, "u1", PASSWORD, OTHER) == 200


@pytest.mark.usefixtures("each_store")
async def test_address_is_forgotten_when_the_software_may_no_longer_call(tmp_path: Path) -> None:
    networks = "SELECT hotel_id, network FROM contact ORDER BY hotel_id"
    async with open_hub(tmp_path) as hub:
        await hub.add_account("u2", 1, await hub.add_hotel("H2"))
        for hotel in ("H1", "H2"):
            assert await log_in(hub, "u2", PASSWORD, OTHER, hotel) == 200
        await revoke(hub.ctx.store, "u2", "H1")
        rows = await hub.execute(networks)
        assert [row["network"] for row in rows] == [None, OTHER]
        await set_account_disabled(hub.ctx.store, "u2", True)
        rows = await hub.execute(networks)
        assert [row["network"] for row in rows] == [None, None]


@pytest.mark.usefixtures("each_store")
async def test_address_is_not_stored_when_the_account_is_disabled_during_its_message(
    tmp_path: Path,
) -> None:
    async with open_hub(tmp_path) as hub, calling_from(hub, OTHER) as there:
        whole = there.client.build_request(
            "POST", "/", files={"action": (None, READ), "request": (None, read_rq("H1"))}
        )
        data = await whole.aread()

        async def disabled_meanwhile() -> AsyncIterator[bytes]:
            yield data[:100]
            await set_account_disabled(hub.ctx.store, "u1", True)
            yield data[100:]

        answer = await there.client.post(
            "/api/alpinebits",
            content=disabled_meanwhile(),
            auth=httpx.BasicAuth("u1", PASSWORD),
            headers={
                "Content-Type": whole.headers["Content-Type"],
                "X-AlpineBits-ClientProtocolVersion": "2024-10",
            },
        )
        assert answer.status_code == 200
        [row] = await hub.execute("SELECT polled_at, network FROM contact")
        assert row["polled_at"] and row["network"] is None


@pytest.mark.usefixtures("each_store")
async def test_guesser_who_leaves_does_not_keep_the_hotel_software_out(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as other, open_worker(tmp_path) as hub:
        assert await log_in(other, "u1", PASSWORD, OTHER) == 200
        said = [await log_in(hub, "u1", f"guess {n}", f"192.0.2.{n}") for n in range(100)]
        assert said == [401] * 100
        guess = asyncio.create_task(log_in(hub, "u1", "guess", GUESSER))
        while not login._caches[hub.ctx.store].read_again_at:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0)
        guess.cancel()
        await asyncio.wait([guess])
        assert await log_in(hub, "u1", PASSWORD, OTHER) == 200


async def test_networks_are_read_again_when_software_moved_during_guesses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_hub(tmp_path) as other, open_worker(tmp_path) as hub:
        said = [await log_in(hub, "u1", f"guess {n}", f"192.0.2.{n}") for n in range(110)]
        assert said[-1] == 429
        assert await log_in(other, "u1", PASSWORD, OTHER) == 200
        assert await log_in(hub, "u1", PASSWORD, OTHER) == 429
        later = float(int(monotonic())) + 60
        monkeypatch.setattr(login, "monotonic", lambda: later)
        said = [await log_in(hub, "u1", f"guess {n}", f"192.0.3.{n}") for n in range(60)]
        assert said[-1] == 429
        assert await log_in(hub, "u1", PASSWORD, OTHER) == 200


async def test_names_are_tried_from_an_address_only_so_often(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        said = [await log_in(hub, f"name {number}", "x") for number in range(60)]
        assert said[:30] == [401] * 30 and said.count(429) >= 5
        assert await log_in(hub, "u1", PASSWORD, OTHER) == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_address_of_a_proxy_that_is_not_trusted_keeps_no_other_account_out(
    tmp_path: Path, address: str
) -> None:
    async with open_hub(tmp_path) as hub:
        said = [await log_in(hub, f"name {number}", "x", address) for number in range(60)]
        assert said == [401] * 60
        assert await log_in(hub, "u1", PASSWORD, address) == 200


async def test_address_of_ipv6_is_its_network(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        said = [await log_in(hub, "u1", f"guess {n}", f"2001:db8::{n:x}") for n in range(40)]
        assert said.count(401) <= 20
        assert await log_in(hub, "u1", PASSWORD, "2001:db8:0:1::1") == 200


async def test_guesses_are_told_with_the_name_and_without_the_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hub(tmp_path) as hub:
        for number in range(40):
            await log_in(hub, "u1", f"guess-{number}")
        assert alerts(caplog) == ["passwords-guessed:u1"]
        [line] = [one.getMessage() for one in caplog.records if "ALERT" in vars(one)]
        assert "'u1'" in line and GUESSER in line
        caplog.clear()
        for number in range(40):
            await log_in(hub, "\x1b[31m\u202e" + "x" * 1000, f"guess-{number}", OTHER)
        assert alerts(caplog) == ["passwords-guessed"]
        said = "".join(record.getMessage() for record in caplog.records)
        assert "\x1b" not in said and "\u202e" not in said and "x" * 100 not in said
        assert "guess-" not in said


async def test_wrong_password_costs_what_an_unknown_account_costs_after_a_rotation(
    tmp_path: Path,
) -> None:
    """And the old one, the new one, and no hash at all for who is remembered."""
    with hashes() as computed:
        async with open_hub(tmp_path) as hub:
            await check_costs(hub, computed)


async def check_costs(hub: Hub, computed: list[str]) -> None:
    await add_account(hub.ctx.store, "pms", "first", ["H1"])
    await set_password(hub.ctx.store, "pms", "second", keep_s=3600)
    for user, password, status, cost in (
        ("nobody", "wrong", 401, 1),
        ("pms", "wrong", 401, 1),
        ("pms", "first", 200, 1),
        ("pms", "second", 200, 1),
        ("pms", "first", 200, 0),
        ("pms", "third", 401, 1),
    ):
        computed.clear()
        assert await log_in(hub, user, password) == status
        assert len(computed) == cost, (user, password)
    await set_password(hub.ctx.store, "pms", "fourth", keep_s=3600)
    forget_directory(hub.ctx)
    computed.clear()
    assert await log_in(hub, "pms", "first", OTHER) == 401
    assert await log_in(hub, "pms", "second", OTHER) == 200
    assert len(computed) == 2
