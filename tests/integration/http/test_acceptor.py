"""How connections are taken from a listening socket that other workers share."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

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
