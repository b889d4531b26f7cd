"""Our pool as it is used: four workers, one client on an event loop."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.pool_work import PAYLOAD, PROCESSES, Figures
from tests.contract.pool.running import running as whole_pool

from cordata.pool import Client, SyncClient

TIMEOUT_S = 10.0
#: Calls that are not measured: of all, and of each session at least.
_CALLS_BEFORE, _CALLS_OF_EACH = 200, 8


@contextmanager
def running() -> Iterator[Path]:
    """Where its children listen."""
    with tempfile.TemporaryDirectory(prefix="cordata-pool-") as directory:
        place = Path(directory)
        with whole_pool(place, app="tests.bench.pool_app:app", workers=PROCESSES) as path:
            with SyncClient(path) as client:
                for _ in range(_CALLS_BEFORE):
                    client.execute("echo", PAYLOAD)
            yield path


async def measure(
    path: Path, name: str, *, outstanding: int, seconds: float, sessions: bool = True
) -> Figures:
    """Keep so many calls under way for so long, each with a deadline and a session, if wanted.

    The client is warm, as the peers are, whose client is the pool: it is connected, and its
    sessions have a child.
    """
    figures = Figures()

    async def warm(session: str) -> None:
        for _ in range(max(_CALLS_BEFORE // outstanding, _CALLS_OF_EACH)):
            await client.execute("echo", PAYLOAD, session=session, timeout=TIMEOUT_S)
        await client.execute(name, PAYLOAD, session=session, timeout=TIMEOUT_S)

    async def call(session: str) -> None:
        while (began := time.perf_counter()) < end:
            await client.execute(name, PAYLOAD, session=session, timeout=TIMEOUT_S)
            figures.latencies.append(time.perf_counter() - began)

    async with Client(path) as client:
        ids = [""] * outstanding
        if sessions:
            ids = [(await client.sessions.create()).id for _ in ids]
        await asyncio.gather(*map(warm, ids))
        with figures.measured():
            end = time.perf_counter() + seconds
            async with asyncio.TaskGroup() as group:
                for session in ids:
                    group.create_task(call(session))
    return figures
