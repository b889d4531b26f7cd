"""Four processes on one socket: even shares, and no request lost when one goes."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.http.live import Stream, read_head
from tests.servers.process import free_port
from tests.servers.reaper import watched
from tests.unit.http.apps import GET
from tests.waiting import until_async

ROOT = Path(__file__).resolve().parents[3]
ASK = GET.replace(b"/x?q=1", b"/api/health").replace(b"X-Request-ID: r1\r\n", b"")


@asynccontextmanager
async def workers(count: int, spread: Path) -> AsyncIterator[tuple[int, int]]:
    """`count` processes that share a listening socket. Yields the port and the process group."""
    port = free_port()
    argv = [sys.executable, "-m", "tests.bench.http_worker", str(port), str(count), str(spread)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
    starting = asyncio.create_subprocess_exec(
        *argv, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    )
    process = watched(await starting)
    try:
        seen: set[str] = set()
        async with asyncio.timeout(60):
            while len(seen) < count:
                try:
                    stream = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    seen.add(await worker_of(stream))
                    stream[1].close()
        yield port, process.pid
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        await process.wait()


async def worker_of(stream: Stream) -> str:
    """Which process serves a connection: request ids it makes begin with what is its own."""
    stream[1].write(ASK)
    head = await read_head(stream[0])
    await stream[0].readexactly(15)
    return head.partition(b"x-request-id: ")[2][:16].decode()


async def all_gone(spread: Path) -> None:
    """Until the workers have no connection."""
    rows = struct.Struct("=QQQQ")
    await until_async(lambda: not any(row[2] for row in rows.iter_unpack(spread.read_bytes())))


@pytest.mark.parametrize("together", [True, False])
async def test_connections_are_spread_evenly(together: bool, tmp_path: Path) -> None:
    """By advice: one that is kept from running for milliseconds gets less. Not five times."""
    async with workers(4, tmp_path / "spread") as (port, _):
        for _ in range(5):
            await all_gone(tmp_path / "spread")
            shares = await shares_of(port, together=together)
            if len(shares) == 4 and max(shares.values()) <= 2 * min(shares.values()):
                break
        else:
            raise AssertionError(shares)


async def shares_of(port: int, *, together: bool) -> Counter[str]:
    """How many of 64 connections each worker gets."""
    streams: list[Stream] = []
    try:
        if together:
            opening = (asyncio.open_connection("127.0.0.1", port) for _ in range(64))
            streams += await asyncio.gather(*opening)
        else:
            for _ in range(64):
                streams.append(await asyncio.open_connection("127.0.0.1", port))
                await worker_of(streams[-1])
        return Counter([await worker_of(stream) for stream in streams])
    finally:
        for _, writer in streams:
            writer.close()
