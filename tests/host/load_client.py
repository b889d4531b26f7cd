"""Runs inside a host: keeps requests coming and counts every way in which one can fail.

Standard library only, one JSON object of settings in argv[1]. Says `started` after the first
answer, goes on until its stdin ends or `count` requests are done, then prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Settings:
    """What to send. With `body`, a POST in which `{n}` is the number of the request."""

    address: str = "127.0.0.1:8080"
    path: str = "/api/health"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    connections: int = 16
    #: Number of the first request.
    first: int = 0
    #: Requests in all; 0: until stdin ends.
    count: int = 0
    #: Pause of one connection between two requests.
    pause_s: float = 0.04
    #: False: a new connection for each request.
    keep: bool = True
    #: Send a failed request again until it is answered with 2xx (the receiver knows it by number).
    again: bool = False
    timeout_s: float = 30.0


class Client:
    """Counts ok, refused, lost (no answer to a request), timeout, and other statuses by number."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stop = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        self.acknowledged: list[int] = []
        self.next = settings.first
        self.host, _, self.port = settings.address.rpartition(":")

    async def run(self) -> dict[str, Any]:
        """Send until told to stop; the result is what is printed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_stdin())
            senders = [group.create_task(self._send()) for _ in range(self.settings.connections)]
            await asyncio.wait(senders)
            self.stop.set()
        times = sorted(self.latencies_s) or [0.0]
        return {
            "counts": dict(self.counts),
            "p50_ms": round(times[len(times) // 2] * 1000, 1),
            "p99_ms": round(times[len(times) * 99 // 100] * 1000, 1),
            "max_ms": round(times[-1] * 1000, 1),
            "acknowledged": self.acknowledged if self.settings.body else [],
        }

    async def _watch_stdin(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        ended = asyncio.ensure_future(reader.read())
        stopped = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        self.stop.set()

    async def _send(self) -> None:
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        number, answered = 0, True
        while not self.stop.is_set():
            if answered or not self.settings.again:
                if self.settings.count and self.next >= self.settings.first + self.settings.count:
                    break
                number = self.next
                self.next += 1
            begun = time.monotonic()
            outcome, connection = await self._request(connection, number)
            answered = outcome == "ok"
            if not self.counts["ok"] and answered:
                print("started", flush=True)
            self.counts[outcome] += 1
            if answered:
                self.latencies_s.append(time.monotonic() - begun)
                self.acknowledged.append(number)
            if connection and not self.settings.keep:
                connection[1].close()
                connection = None
            await asyncio.sleep(self.settings.pause_s if answered else 0.05)
        if connection:
            connection[1].close()

    async def _request(
        self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None, number: int
    ) -> tuple[str, tuple[asyncio.StreamReader, asyncio.StreamWriter] | None]:
        if connection and connection[0].at_eof():  # closed between two requests: nobody's loss
            connection[1].close()
            connection = None
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                if connection is None:
                    connection = await asyncio.open_connection(self.host, int(self.port))
                reader, writer = connection
                writer.write(self._bytes(number))
                await writer.drain()
                status, closing = await _read_answer(reader)
        except ConnectionRefusedError:
            return "refused", None
        except TimeoutError:
            outcome = "timeout"
        except (OSError, EOFError, ValueError):
            outcome = "lost"
        else:
            if closing:
                writer.close()
                connection = None
            return "ok" if 200 <= status < 300 else str(status), connection
        if connection:
            connection[1].close()
        return outcome, None

    def _bytes(self, number: int) -> bytes:
        settings = self.settings
        body = settings.body.replace("{n}", str(number)).encode()
        lines = [f"{'POST' if body else 'GET'} {settings.path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in settings.headers.items()]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        if not settings.keep:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode() + body


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
    await reader.readexactly(int(headers.get("content-length", "0")))
    return int(head[0].split()[1]), headers.get("connection") == "close"


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Client(Settings(**json.loads(sys.argv[1]))).run())), flush=True)
