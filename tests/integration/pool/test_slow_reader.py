"""Peers that read nothing: what waits for them is bounded, and nobody else waits with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Raw, msgpack
from tests.integration.pool.inside import Inside, inside
from tests.integration.pool.managing import START
from tests.integration.pool.peer import Peer

from cordata.core.frame import pack
from cordata.core.pool.codec import encode
from cordata.core.pool.message import (
    CallFrame,
    Cancel,
    Chunk,
    Credit,
    ErrorFrame,
    Ping,
    Pong,
    Result,
)
from cordata.core.pool.order import ChildEvent, Run

LARGE = Raw(msgpack.encode(b"x" * 900_000))


async def serve(here: Inside, child: Peer, count: int) -> None:
    """The child answers so many calls with as much as fits."""
    for _ in range(count):
        run = await here.expect(child, Run)
        await here.send(child, Result(run.id, LARGE))


def calls(peer: Peer, count: int) -> None:
    for number in range(1, count + 1):
        peer.send(CallFrame(number, "echo"))


async def test_client_that_reads_nothing_is_closed_after_a_while_and_its_calls_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with inside(tmp_path, blocked_s=1.0) as here:
        child = await here.dial("child", warm=True)
        deaf, other = await here.dial(), await here.dial()
        calls(deaf, 20)
        await serve(here, child, 8)  # 7 MB: more than 4 of the largest frames, less than 16
        await here.expect(child, Run)
        assert len(here.hub.blocked) == 1
        # It is not read from any more; others are served.
        deaf.send(Ping(99))
        other.send(Ping(1))
        assert (await here.expect(other, Pong)).id == 1
        await here.until(lambda: not here.hub.blocked)
        assert "reads nothing" in caplog.text
        assert here.server.status()["connections"]["refused"] == {"unread": 1}
        assert here.server.status()["pools"]["default"]["waiting"] == 0
        await here.expect(child, Cancel)
        child.send(Result(9))
        other.send(CallFrame(2, "echo"))
        await here.expect(child, Run)


async def test_client_with_too_much_unread_is_closed_at_once(tmp_path: Path) -> None:
    async with inside(tmp_path, blocked_s=3600.0) as here:
        child = await here.dial("child", warm=True)
        deaf = await here.dial()
        calls(deaf, 40)
        most = 0
        for number in range(1, 41):
            run = await here.expect(child, Run)
            await here.send(child, Result(run.id, LARGE))
            await here.answered(number)
            most = max(most, *(link.unread_bytes() for link in here.hub.links))
            if here.hub.counting.refused["unread"]:
                break
        assert 15_000_000 < most <= 17_000_000
        await here.until(lambda: len(here.hub.links) == 1)
        assert not here.hub.dispatcher.waiting["default"].count


async def test_clients_share_what_may_wait_for_all_of_them(tmp_path: Path) -> None:
    async with inside(tmp_path, blocked_s=3600.0) as here:
        child = await here.dial("child", warm=True)
        clients = [await here.dial() for _ in range(5)]
        for number, client in enumerate(clients):
            calls(client, 5 if number else 2)
        await serve(here, child, 22)  # 20 MB for all of them
        await here.until(lambda: here.hub.counting.refused["unread"])
        most = here.hub.limits.unread_bytes
        await here.until(lambda: sum(link.unread_bytes() for link in here.hub.links) <= most)
        assert len(here.hub.links) == 5
        # The one that made the least of it is still there.
        assert (await here.expect(clients[0], Result)).id == 1


async def test_child_that_does_not_read_is_read_from(tmp_path: Path) -> None:
    """Else neither would: it sends its answer before it reads on."""
    async with inside(tmp_path, blocked_s=0.1) as here:
        child = await here.dial("child", warm=True)
        client = await here.dial()
        client.send(CallFrame(1, "echo", credits=1))
        await here.expect(child, Run)
        (row,) = here.hub.dispatcher.registry.by_pid.values()
        link = row.conn
        for _ in range(4):  # what it will read between its calls
            link.send(pack(b"x" * 900_000))
        await here.until(lambda: link in here.hub.blocked)
        await here.send(child, Result(1, LARGE))
        assert (await here.expect(client, Result)).id == 1
        await here.until(lambda: row.state.value == "ready")
        # However long it takes: its deadline ends it, not this.
        await here.until(lambda: here.hub.now - here.hub.blocked[link] > 1.2)
        assert link in here.hub.links


async def test_credits_that_nobody_uses_are_bounded(tmp_path: Path) -> None:
    async with inside(tmp_path) as here:
        child = await here.dial("child", warm=True)
        client = await here.dial()
        client.send(CallFrame(1, "echo", credits=1))
        await here.expect(child, Run)
        for _ in range(64):
            client.send(Credit(1, 1024))
        child.send(Chunk(1))
        await here.expect(client, Chunk)
        client.raw(encode(Credit(1, 1024)) * 10)
        error = await here.expect(client, ErrorFrame)
        assert (error.code, "credits" in error.m) == ("protocol", True)


async def test_worker_that_does_not_read_still_tells(tmp_path: Path) -> None:
    async with inside(tmp_path) as here:
        worker = await here.dial("worker")
        link = here.hub.dispatcher.registry.by_worker["0"].conn
        for _ in range(4):
            link.send(pack(b"x" * 900_000))
        await here.until(lambda: link in here.hub.blocked)
        worker.send(ChildEvent("started", pid=1, start=START))
        await here.until(lambda: here.hub.dispatcher.registry.by_pid)


async def test_refused_connection_that_reads_nothing_does_not_stay(tmp_path: Path) -> None:
    async with inside(tmp_path) as here:
        child = await here.dial("child", warm=True)
        deaf = await here.dial()
        calls(deaf, 3)
        await serve(here, child, 3)
        link = next(iter(here.hub.blocked))
        link.refuse("protocol", "for a test")
        assert link in here.hub.ending
        await here.until(lambda: link not in here.hub.links, timeout_s=12.0)
