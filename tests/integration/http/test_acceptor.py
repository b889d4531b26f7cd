"""How connections are taken from a listening socket that other workers share."""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import ExitStack

import pytest

from cordata.http.accept import Acceptor


async def test_one_connection_is_taken_per_tick_when_many_wait() -> None:
    loop = asyncio.get_running_loop()
    ticks, taken_at, done = 0, list[int](), asyncio.Event()

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        if not done.is_set():
            loop.call_soon(tick)

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(5):
            stack.enter_context(socket.create_connection(listener.getsockname()))

        def take(connection: socket.socket) -> None:
            stack.enter_context(connection)
            taken_at.append(ticks)
            if len(taken_at) == 5:
                done.set()

        acceptor = Acceptor([listener], take=take, is_full=lambda: False, make_room=lambda: None)
        tick()
        acceptor.open()
        async with asyncio.timeout(60):
            await done.wait()
        acceptor.close()
    assert len(set(taken_at)) == 5


async def test_error_is_logged_once_when_attempts_find_no_free_descriptor(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attempts, third, taken = 0, asyncio.Event(), asyncio.Event()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def attempt() -> bool:
        nonlocal attempts
        attempts += 1
        if attempts == 3:
            third.set()
        return True

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.enter_context(socket.create_connection(listener.getsockname()))

        def take(connection: socket.socket) -> None:
            stack.enter_context(connection)
            taken.set()

        acceptor = Acceptor(
            [listener],
            take=take,
            is_full=lambda: False,
            make_room=lambda: None,
            is_our_turn=attempt,
        )
        stack.callback(acceptor.close)
        async with asyncio.timeout(60):
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # what is open stays
            try:
                acceptor.open()
                await third.wait()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await taken.wait()
    assert caplog.text.count("cannot accept connections for now: ") == 1
