"""What happens to a guest request between the moment when a push reads it and its connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.integration.alpinebits_client.peers import Scripted, make_certificate, scripted
from tests.integration.hub.guests import write
from tests.integration.hub.material import Hub, open_hub
from tests.integration.push.peer import HotelSoftware, acked, book, target

from alpinehub.alpinebits_client import http
from alpinehub.customers.erasure import Reason, erase
from alpinehub.customers.search import find
from alpinehub.push.target import list_targets
from alpinehub.requests import actions

pytestmark = pytest.mark.usefixtures("each_store")
Change = Callable[[Hub, str], Awaitable[None]]


async def withdraw(hub: Hub, request_id: str) -> None:
    result = await actions.cancel(hub.ctx.store, request_id, account=None, by="test")
    assert result.accounts == ["demo"]


async def cancel_at_hotel(hub: Hub, request_id: str) -> None:
    result = await actions.cancel_at_hotel(hub.ctx.store, request_id, by="test")
    assert result.accounts == []


async def erase_guest(hub: Hub, request_id: str) -> None:
    number = await hub.one(f"SELECT customer_id FROM reservation WHERE id = '{request_id}'")
    customers = await find(hub.ctx.store, id=int(number))
    await erase(hub.ctx.store, customers, Reason(by="test", force=True))


@asynccontextmanager
async def slow_handshake(
    peer: Scripted, before: Callable[[], Awaitable[None]]
) -> AsyncIterator[str]:
    """The URL of a server with TLS whose first handshake goes on when `before` is done."""
    calls = [before]

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(64 * 1024):
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if calls:
            await calls.pop()()
        there = await asyncio.open_connection("127.0.0.1", peer.port)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield peer.url.replace("http:", "https:").replace(str(peer.port), str(port))
    finally:
        server.close()


@asynccontextmanager
async def changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> AsyncIterator[tuple[Hub, HotelSoftware, Scripted, str]]:
    """A hub with one guest request, and an account whose server it is about to be pushed to."""
    tls = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    monkeypatch.setattr(http, "_contexts", {})
    software = HotelSoftware()
    async with (
        open_hub(tmp_path, push_private=True) as hub,
        scripted(software.answer, tls=tls) as peer,
    ):
        first = await book(hub, 1, email="first@example.com")
        async with slow_handshake(peer, lambda: change(hub, first)) as url:
            await target(hub, "demo", url)
            yield hub, software, peer, first


@pytest.mark.parametrize("change", [withdraw, cancel_at_hotel, erase_guest])
async def test_request_that_is_withdrawn_while_a_push_connects_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    async with changed_meanwhile(tmp_path, monkeypatch, change) as (hub, software, *_):
        await hub.handle_events()
        await hub.harness.run_periodic("sweep_pushes")
        await hub.handle_events()
        assert software.came == []
        assert await hub.one("SELECT count(*) FROM delivery WHERE ever_sent = 1") == 0
        delivered = "SELECT count(*) FROM reservation_history WHERE event = 'delivered'"
        assert await hub.one(delivered) == 0
        assert [row["failures"] for row in await list_targets(hub.ctx)] == [0]


async def test_others_of_its_message_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with changed_meanwhile(tmp_path, monkeypatch, withdraw) as (hub, software, _, first):
        second = await book(hub, 2, email="second@example.com")
        await hub.handle_events()
        assert software.came == [[("14", second)]]
        assert await acked(hub) == {first: False, second: True}


async def test_version_that_is_replaced_while_a_push_connects_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def change(hub: Hub, request_id: str) -> None:
        await write(hub, number="n-1", email="first@example.com", last_name="Changed")

    async with changed_meanwhile(tmp_path, monkeypatch, change) as (hub, software, peer, first):
        await hub.handle_events()
        assert software.came == [[("14", first)]]
        assert b"Changed" in peer.asked[-1].document
