"""Where there are too many connections, those go that keep the server waiting."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.http.apps import GET, POST, body, http_only, sending, start
from tests.unit.http.wire import Wire, answers_of, connect, serving

from cordata.config.sections import HttpConfig
from cordata.http import HttpServer
from cordata.http.asgi import Receive, Scope, Send

CONFIG = HttpConfig(max_connections=1000)


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A socket on which nothing has come."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def connected(server: HttpServer, sock: socket.socket) -> Wire:
    wire = connect(server)
    wire.transport.socket = sock
    return wire


async def evict_at(
    server: HttpServer, seconds: float, wires: list[Wire], *, closed: bool = False
) -> list[int]:
    """At a moment in the future; which connections have ended by then, or are even `closed`."""
    server.evict(server.state.loop.time() + seconds)
    for wire in wires:
        await wire.settle()
    ended = [wire.transport.closing if closed else wire.transport.ended for wire in wires]
    return [number for number, over in enumerate(ended) if over]


async def test_those_go_first_who_said_least(silent: socket.socket) -> None:
    done = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await done.wait()
        await send(start())
        await send(body(b"ok"))

    async with serving(http_only(slow), CONFIG) as server:
        begun: tuple[list[bytes], ...] = ([GET], [POST % 4 + b"ab"], [GET[:20]], [])
        wires = []
        for pieces in begun:
            wires.append(connected(server, silent))
            await wires[-1].feed(*pieces)
        assert await evict_at(server, 0.9, wires) == []
        assert await evict_at(server, 1.5, wires) == [3]
        assert await evict_at(server, 1.5, wires) == [2, 3]
        assert await evict_at(server, 4.5, wires) == [2, 3]
        assert await evict_at(server, 5.5, wires) == [1, 2, 3]
        assert await evict_at(server, 50.0, wires) == [1, 2, 3]
        done.set()
        await wires[0].settle()
        statuses = [[answer.status for answer in answers_of(wire)] for wire in wires]
        assert statuses == [[200], [408], [408], []]


async def test_those_go_who_do_not_read_and_not_those_who_read(silent: socket.socket) -> None:
    size = 1_000_000
    stream = sending(start(), body(b"x" * size, more=True), body(b"x", more=True))
    whole = sending(start(), body(b"x" * size))

    async def either(scope: Scope, receive: Receive, send: Send) -> None:
        await (stream if scope["path"] == "/stream" else whole)(scope, receive, send)
        while (await receive())["type"] != "http.disconnect":
            pass

    async with serving(http_only(either), CONFIG) as server:
        wires = [connected(server, silent) for _ in range(5)]
        for number, wire in enumerate(wires):
            await wire.feed(GET.replace(b"/x", b"/stream") if number % 2 else GET)
        reads = (0, 0, 50_000, 50_000, 100)  # bytes of each in a second
        for second in range(4):
            for wire, rate in zip(wires, reads, strict=True):
                wire.transport.unsent = size - second * rate
            server.sweep(server.state.loop.time() + second)
        gone: list[int] = []
        for count in range(1, 4):  # one at a time
            gone = await evict_at(server, 3.5, wires, closed=True)
            assert len(gone) == count
        assert gone == [0, 1, 4]
        assert await evict_at(server, 3.5, wires, closed=True) == gone


async def test_few_go_at_once_and_the_one_that_waits_for_longest(
    silent: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    async with serving(http_only(never), CONFIG) as server:
        wires = [connected(server, silent) for _ in range(40)]
        oldest = wires[7].connection
        oldest._phase_since -= 0.5
        assert len(await evict_at(server, 0.7, wires)) == 1
        assert wires[7].transport.ended
        assert len(await evict_at(server, 2.0, wires)) == 2  # of 39 that are left, one
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(told) == 1 and told[0].startswith("connection limit reached (40)")


async def test_waiting_time_is_right_after_a_reload_and_in_a_drain(silent: socket.socket) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    async with serving(http_only(never), CONFIG) as server:
        wires = [connected(server, silent) for _ in range(3)]
        await wires[1].feed(GET[:20])
        await wires[2].feed(b"rubbish\r\n\r\n")
        server.reload(
            replace(CONFIG, first_byte_timeout_s=99, header_timeout_s=99, body_timeout_s=99)
        )
        server.state.draining = True
        assert await evict_at(server, 0.9, wires, closed=True) == []
        now = server.state.loop.time()
        keys = [wire.connection.eviction_key(now + 1.5) or (0, 0.0) for wire in wires]
        assert [(rank, round(waited_s, 3)) for rank, waited_s in keys] == [
            (3, 1.5),
            (2, 1.5),
            (4, 1.5),
        ]
