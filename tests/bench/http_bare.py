"""N processes of asyncio.Protocol, httptools and uvloop, and nothing else: no ASGI, no routes, no
time limits. It is what a server in Python costs at least.

python -m tests.bench.http_bare PORT WORKERS
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import cast

import httptools
import uvloop

_BODY = b'{"status":"ok"}'
_FOUND = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)
_MISSING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class Connection(asyncio.Protocol):
    """Answers each request at its end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is no subclass
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_message_complete(self) -> None:
        self._transport.write(_FOUND if self._url == b"/api/health" else _MISSING)
        if not self._parser.should_keep_alive():
            self._transport.close()


async def serve(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(Connection, sock=listener)
    await server.serve_forever()


def main() -> None:
    port, workers = int(sys.argv[1]), int(sys.argv[2])
    for _ in range(workers - 1):
        if os.fork() == 0:
            break
    # A listener of each process: the kernel spreads the connections.
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(listener))


if __name__ == "__main__":
    main()
