"""A hostile network: bytes to a hub's port as no client would send them, and what comes back."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import re
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.integration.server.hubs import FORM_SECRETS, Hub

MIB = b"x" * 1_048_576
#: Only reached when it fails; the machine may be busy.
PATIENCE_S = 120.0
_BASIC = {
    "X-AlpineBits-ClientProtocolVersion": "2024-10",
    "Content-Type": "multipart/form-data; boundary=B",
}
_JSON = {"Content-Type": "application/json"}
_URLENCODED = {"Content-Type": "application/x-www-form-urlencoded"}
_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")


def basic(user: str, password: str) -> dict[str, str]:
    """The header of a login."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


#: By name: path and headers of what takes a body.
TARGETS: Mapping[str, tuple[str, dict[str, str]]] = {
    "alpinebits": ("/api/alpinebits", {**_BASIC, **basic("demo", "demo")}),
    "stranger": ("/api/alpinebits", {**_BASIC, **basic("demo", "wrong")}),
    "generic": ("/api/webhook/generic", {**_JSON, "X-Webhook-Secret": "demo"}),
    "wix": (f"/api/webhook/wix/DEMO/{FORM_SECRETS['wix']}", _JSON),
    "google": ("/api/webhook/google", _JSON),
    "form": (f"/api/webhook/form/DEMO/{FORM_SECRETS['form']}", _URLENCODED),
    "nothing": ("/nothing", {}),
}


def head(target: str, **headers: object) -> bytes:
    """The head of a POST; `_` in a name stands for "-"."""
    path, given = TARGETS[target]
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    fields = {"Host": "hub", **given, **named}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def whole(target: str, body: bytes, **headers: object) -> bytes:
    """A request with its body, on a connection that ends with it."""
    return head(target, Content_Length=len(body), Connection="close", **headers) + body


def chunked(target: str, pieces: Iterable[bytes]) -> Iterable[bytes]:
    """A request whose body comes in chunks."""
    yield head(target, Transfer_Encoding="chunked")
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


@dataclass
class Attacker:
    """Talks to one hub."""

    hub: Hub

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[socket.socket]:
        """Closed at the end, with a reset where anything is unread. No stream of asyncio: that
        forgets what has come when a reset comes after it.
        """
        host, _, port = self.hub.address.rpartition(":")
        with socket.socket() as sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
            yield sock

    async def send(self, *pieces: bytes, more: Iterable[bytes] = (), cut: bool = False) -> bytes:
        """What comes back until the hub closes; `cut`: the connection is cut off behind the last
        piece, and nothing comes back.
        """
        async with asyncio.timeout(PATIENCE_S), self.connection() as sock:
            if cut:
                await _send(sock, (*pieces, *more))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return b""
            async with asyncio.TaskGroup() as group:
                sender = group.create_task(_send_all(sock, itertools.chain(pieces, more)))
                answer = await _all_of(sock)
                sender.cancel()
            return answer

    async def status(self, *pieces: bytes, more: Iterable[bytes] = ()) -> int:
        """Of the one answer there is."""
        [found] = statuses(await self.send(*pieces, more=more))
        return found

    async def many(self, count: int, request: Callable[[int], bytes]) -> Counter[int]:
        """So many at once; how often each status came."""
        sent = (self.send(request(number)) for number in range(count))
        return Counter(status for one in await asyncio.gather(*sent) for status in statuses(one))

    @contextlib.asynccontextmanager
    async def holding(self, count: int, begun: bytes) -> AsyncIterator[None]:
        """Connections on each of which something has begun that does not go on."""
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(count):
                sock = await stack.enter_async_context(self.connection())
                await asyncio.get_running_loop().sock_sendall(sock, begun)
            yield


async def _send(sock: socket.socket, pieces: Iterable[bytes]) -> None:
    with contextlib.suppress(OSError):
        for piece in pieces:
            await asyncio.get_running_loop().sock_sendall(sock, piece)


async def _send_all(sock: socket.socket, pieces: Iterable[bytes]) -> None:
    """And the end of what we send."""
    await _send(sock, pieces)
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


async def _all_of(sock: socket.socket) -> bytes:
    got = bytearray()
    with contextlib.suppress(ConnectionError):  # who is refused for what he sends, may see a reset
        while piece := await asyncio.get_running_loop().sock_recv(sock, 65_536):
            got += piece
    return bytes(got)


def statuses(answer: bytes) -> list[int]:
    """Of all answers in it."""
    return [int(found) for found in _STATUS.findall(answer)]


def memory_mb(pid: int, which: str) -> int:
    """Of a process, as proc(5) has it: VmRSS is what it has, VmHWM the most that it ever had."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{which}:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) // 1024
