"""Where there are too many connections, those go that keep the server waiting."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator

import pytest
from tests.unit.http.test_exchange import GET, POST, answers_of, body, http_only, start
from tests.unit.http.wire import Wire, connect, serving

from cordata.config.sections import HttpConfig
from cordata.http import HttpServer
from cordata.http.asgi import Receive, Scope, Send
from cordata.http.crowd import Crowd

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


async def thin(server: HttpServer, seconds: float, wires: list[Wire]) -> list[int]:
    """At a moment in the future; which connections have ended by then."""
    Crowd().thin(server.connections, server.loop.time() + seconds)
    for wire in wires:
        await wire.settle()
    return [number for number, wire in enumerate(wires) if wire.transport.ended]


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
        assert await thin(server, 0.9, wires) == []
        assert await thin(server, 1.5, wires) == [3]
        assert await thin(server, 1.5, wires) == [2, 3]
        assert await thin(server, 4.5, wires) == [2, 3]
        assert await thin(server, 5.5, wires) == [1, 2, 3]
        assert await thin(server, 50.0, wires) == [1, 2, 3]
        done.set()
        await wires[0].settle()
        statuses = [[answer.status for answer in answers_of(wire)] for wire in wires]
        assert statuses == [[200], [408], [408], []]


async def test_few_go_at_once_and_the_one_that_waits_for_longest(
    silent: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    async with serving(http_only(never), CONFIG) as server:
        wires = [connected(server, silent) for _ in range(40)]
        oldest = wires[7].connection
        oldest._deadline -= 0.5
        assert len(await thin(server, 0.7, wires)) == 1
        assert wires[7].transport.ended
        assert len(await thin(server, 2.0, wires)) == 2  # of 39 that are left, one
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(told) == 2 and told[0].startswith("40 connections are as many as")
