"""A server on real sockets, and a raw client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.unit.http.wire import Answer, parse_answers
from tests.waiting import until_async

from cordata.config.sections import HttpConfig
from cordata.http import AsgiApp, HttpServer

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Live:
    """A running server."""

    def __init__(self, server: HttpServer, sockets: list[socket.socket]) -> None:
        self.server = server
        self.sockets = sockets
        self.stop = asyncio.Event()

    @property
    def port(self) -> int:
        for sock in self.sockets:
            if sock.family == socket.AF_INET:
                port: int = sock.getsockname()[1]
                return port
        raise LookupError

    async def connect(self) -> Stream:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def talk(self, *pieces: bytes, methods: tuple[str, ...] = ()) -> list[Answer]:
        """Send pieces on a new connection, read to its end, return the answers."""
        reader, writer = await self.connect()
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with asyncio.timeout(60):
                output = await reader.read()
        finally:
            writer.close()
        return parse_answers(output, methods, ended=True)

    async def quiet(self) -> None:
        """Until no connection and no request is left."""
        state = self.server.state
        await until_async(lambda: not (state.connection_count or state.in_flight))


@contextmanager
def listening(unix: Path | None = None) -> Iterator[list[socket.socket]]:
    """A TCP socket on a free port of 127.0.0.1, and a unix socket when a path is given."""
    sockets = [socket.create_server(("127.0.0.1", 0), backlog=256)]
    if unix is not None:
        sockets.append(socket.socket(socket.AF_UNIX))
        sockets[1].bind(str(unix))
        sockets[1].listen(256)
    try:
        yield sockets
    finally:
        for sock in sockets:
            sock.close()


@asynccontextmanager
async def live(
    app: AsgiApp,
    config: HttpConfig | None = None,
    *,
    unix: Path | None = None,
    state: dict[str, Any] | None = None,
    error_texts: Mapping[str, str] | None = None,
) -> AsyncIterator[Live]:
    """A server that runs until the block ends; its drain leaves nothing behind."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    with listening(unix) as sockets:
        config = config or HttpConfig(drain_s=0)
        server = HttpServer(app, sockets, config, state, error_texts=error_texts)
        running = Live(server, sockets)
        async with asyncio.TaskGroup() as group:
            run = group.create_task(server.run(running.stop))
            await server.ready.wait()
            try:
                yield running
            finally:
                running.stop.set()
                async with asyncio.timeout(60):
                    await run
    assert not errors, errors
    assert server.state.connection_count == 0 and server.state.in_flight == 0


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """The head of the next response."""
    async with asyncio.timeout(60):
        return await reader.readuntil(b"\r\n\r\n")
