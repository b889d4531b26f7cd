"""A connection without a socket: bytes in, what the application saw, bytes out."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cordata.config.sections import HttpConfig
from cordata.http import AsgiApp, HttpServer
from cordata.http.asgi import Receive, Scope, Send
from cordata.http.connection import Connection
from cordata.http.proxy import Peer

#: The limits that the corpus in tests/data/http is written for.
CORPUS_CONFIG = HttpConfig(
    max_request_line_bytes=200, max_header_bytes=1000, max_headers=20, max_body_bytes=500
)
PEER = Peer(client=("192.0.2.1", 4321), server=("192.0.2.2", 80))
_HEAD = re.compile(
    rb"HTTP/1\.1 ([1-9][0-9][0-9]) [ -~]*\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t -~\x80-\xff]*\r\n)*)\r\n"
)
_CHUNK = re.compile(rb"([0-9a-f]+)\r\n")


@dataclass(slots=True)
class Seen:
    """One request as the application got it."""

    scope: Scope
    body: bytes


@dataclass(slots=True)
class Answer:
    """One response as a strict client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


class Recorder:
    """An application that reads everything, remembers it and answers with what it read."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan here")
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.seen.append(Seen(scope, body))
        headers = [(b"content-type", b"application/octet-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class MemoryTransport(asyncio.Transport):
    """Collects what is written; closes at the next turn of the loop, as real ones do."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self.written = bytearray()
        self.closing = False
        self.eof_written = False
        self.reading = True
        #: What `get_write_buffer_size` says.
        self.unsent = 0
        #: What `get_extra_info` has for "socket".
        self.socket: socket.socket | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else default

    def write(self, data: Any) -> None:
        assert not self.closing and not self.eof_written, "written after the end"
        assert isinstance(data, bytes)
        self.written += data

    def write_eof(self) -> None:
        self.eof_written = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    @property
    def ended(self) -> bool:
        """The client sees the end of the stream."""
        return self.closing or self.eof_written


@dataclass(slots=True)
class Wire:
    """One connection to a server that has no socket."""

    server: HttpServer
    connection: Connection
    transport: MemoryTransport
    loop_errors: list[dict[str, Any]] = field(default_factory=list)

    async def feed(self, *pieces: bytes) -> None:
        """Deliver pieces as the transport would, each with a turn of the loop after it."""
        for piece in pieces:
            if not self.transport.closing:
                self.connection.data_received(piece)
            await self.settle()

    async def settle(self) -> None:
        """Until nothing moves any more."""
        quiet = 0
        before = -1
        while quiet < 3:
            await asyncio.sleep(0)
            now = len(self.transport.written)
            quiet = quiet + 1 if now == before else 0
            before = now

    @property
    def output(self) -> bytes:
        return bytes(self.transport.written)


class StillLoop:
    """The loop, with a clock that stands still until a test moves it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._began = loop.time()
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._began + self.seconds


def still(server: HttpServer) -> StillLoop:
    """The loop of a server that `serving` runs."""
    loop: Any = server.state.loop
    assert isinstance(loop, StillLoop)
    return loop


@asynccontextmanager
async def wired(
    app: AsgiApp, config: HttpConfig = CORPUS_CONFIG, peer: Peer = PEER
) -> AsyncIterator[Wire]:
    """A running server and one connection to it; nothing may be left in hand at the end."""
    async with serving(app, config) as server:
        yield connect(server, peer)


@asynccontextmanager
async def serving(app: AsgiApp, config: HttpConfig) -> AsyncIterator[HttpServer]:
    """A running server without sockets. An exception that reaches the loop fails the test."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    server = HttpServer(app, [], config)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        run = group.create_task(server.run(stop))
        await server.ready.wait()
        server.state.loop = StillLoop(server.state.loop)  # type: ignore[assignment]
        try:
            yield server
        finally:
            for connection in tuple(server.connections):
                connection.abort()
            stop.set()
            await run
    assert not errors, errors
    assert server.state.in_flight == 0
    assert server.state.connection_count == 0


def connect(server: HttpServer, peer: Peer = PEER) -> Wire:
    """A new connection of a running server."""
    connection = server.new_connection(peer)
    transport = MemoryTransport(connection)
    connection.connection_made(transport)
    return Wire(server, connection, transport)


def parse_answers(output: bytes, methods: Iterable[str], *, ended: bool) -> list[Answer]:
    """Every response in `output`. Raises: AssertionError unless it is well-formed to the last byte.

    `methods`: of the requests, as far as known; "GET" after that.
    """
    answers: list[Answer] = []
    known = iter(methods)
    while output:
        match = _HEAD.match(output)
        assert match is not None, output[:200]
        status, output = int(match[1]), output[match.end() :]
        lines = [line.split(b": ", 1) for line in match[2].split(b"\r\n")[:-1]]
        names = [name.lower().decode() for name, _ in lines]
        assert len(set(names)) == len(names), f"repeated headers: {names}"
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in lines}
        if status < 200:
            assert not headers
            continue
        method = next(known, "GET")
        body, output = _cut_body(output, headers, method, status, ended=ended)
        answers.append(Answer(status, headers, body))
    return answers


def _cut_body(
    output: bytes, headers: dict[str, str], method: str, status: int, *, ended: bool
) -> tuple[bytes, bytes]:
    assert not ("content-length" in headers and "transfer-encoding" in headers)
    if method == "HEAD" or status in (204, 304):
        return b"", output
    if "transfer-encoding" in headers:
        body = b""
        while True:
            match = _CHUNK.match(output)
            assert match is not None, output[:100]
            size, output = int(match[1], 16), output[match.end() :]
            body, output, end = body + output[:size], output[size + 2 :], output[size : size + 2]
            assert end == b"\r\n"
            if not size:
                return body, output
    if "content-length" in headers:
        size = int(headers["content-length"])
        assert len(output) >= size, "the body is cut short"
        return output[:size], output[size:]
    assert ended and headers.get("connection") == "close"
    return output, b""


def answers_of(wire: Wire, *methods: str) -> list[Answer]:
    """What came back, as a strict client reads it."""
    return parse_answers(wire.output, methods, ended=wire.transport.ended)
