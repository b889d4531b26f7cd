"""Runs inside a host: what no client should send, many at once; prints how each was answered.

`bad_client.py PATH`. Standard library only. One JSON object: kind -> [status of each, 0: none].
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

ADDRESS = ("127.0.0.1", 8080)
BODY_BYTES = 100 * 1024 * 1024
HEAD = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
#: Kind -> connections at once.
KINDS = {
    "large": 4,
    "large_chunked": 4,
    "many_headers": 20,
    "long_header": 20,
    "slow_header": 200,
    "slow_body": 200,
}


async def pieces(kind: str, path: str) -> AsyncIterator[bytes]:
    """What is sent; it never ends by itself where it is slow."""
    head = HEAD.format(path).encode()
    if kind == "large":
        yield head + b"Content-Length: %d\r\n\r\n" % BODY_BYTES
        for _ in range(BODY_BYTES // 0x10000):
            yield b"x" * 0x10000
    elif kind == "large_chunked":
        yield head + b"Transfer-Encoding: chunked\r\n\r\n"
        for _ in range(BODY_BYTES // 0x10000):
            yield _CHUNK
    elif kind == "many_headers":
        yield head + b"".join(b"X-%d: x\r\n" % number for number in range(100_000))
    elif kind == "long_header":
        yield head + b"X-Long: "
        for _ in range(BODY_BYTES // 0x10000):
            yield b"x" * 0x10000
    else:
        yield head + (b"X-Slow: " if kind == "slow_header" else b"Content-Length: 100000\r\n\r\n")
        while True:
            await asyncio.sleep(0.2)
            yield b"x"


async def one(kind: str, path: str) -> int:
    """The status of the answer, which may come before all is sent; 0: the connection just ended."""
    reader, writer = await asyncio.open_connection(*ADDRESS)
    answer = asyncio.ensure_future(reader.readline())
    try:
        async for piece in pieces(kind, path):
            if answer.done():
                break
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # it was closed on us, after an answer or without one
    try:
        words = (await answer).split()
    except ConnectionError:
        words = []
    writer.transport.abort()
    return int(words[1]) if words else 0


async def main() -> None:
    path = sys.argv[1]
    tasks = {
        kind: [asyncio.ensure_future(one(kind, path)) for _ in range(count)]
        for kind, count in KINDS.items()
    }
    print(json.dumps({kind: [await task for task in found] for kind, found in tasks.items()}))


if __name__ == "__main__":
    asyncio.run(main())
