"""Many requests at once on connections that are kept: what the load measurement sends by."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

from alpinehub.alpinebits_client.http import read_body, read_head

_TIMEOUT_S = 30.0
_MAX_BYTES = 64 << 20

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Connections:
    """Connections to one server; the one that rested longest is used next, so that each of the
    server's workers gets its share. Who finds none free opens another: nobody waits for one.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: deque[Stream] = deque()

    async def open(self, count: int) -> None:
        """Have so many before the first request."""
        for _ in range(count):
            self._idle.append(await asyncio.open_connection("127.0.0.1", self._port))

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body. Raises: OSError, TimeoutError, EOFError, RequestFailed."""
        lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        request = "\r\n".join((*lines, "", "")).encode() + body
        if self._idle:
            stream = self._idle.popleft()
        else:
            stream = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = stream
        whole = False
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                writer.write(request)
                status, answered = await read_head(reader)
                content = await read_body(reader, answered, _MAX_BYTES)
            whole = answered.get("connection", "").lower() != "close"
        finally:
            if whole:
                self._idle.append(stream)
            else:
                writer.close()
        return status, content

    async def close(self) -> None:
        """Once nothing is under way."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
