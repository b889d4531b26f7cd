"""Real child processes: started, read line by line, killed by their own pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.servers import fork_server
from tests.servers.reaper import watched

ROOT = Path(__file__).resolve().parents[3]


class Child:
    """One process."""

    def __init__(self, started: fork_server.Started, stdout: asyncio.StreamReader) -> None:
        self.pid = started.pid
        #: As of `subprocess`; None: it runs.
        self.returncode: int | None = None
        self._stdout = stdout
        self._ended = asyncio.Event()
        self._connection = started.connection
        asyncio.get_running_loop().add_reader(self._connection, self._read_status)

    def _read_status(self) -> None:
        asyncio.get_running_loop().remove_reader(self._connection)
        with self._connection:
            self.returncode = os.waitstatus_to_exitcode(int(self._connection.recv(32)))
        self._ended.set()

    async def line(self, *, timeout_s: float = 120.0) -> str:
        """Its next line of output; "" at its end."""
        async with asyncio.timeout(timeout_s):
            return (await self._stdout.readline()).decode().strip()

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # It may have ended, its parent reaped it, and its status not arrived here yet.
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop(self, *, timeout_s: float = 120.0) -> int:
        """SIGTERM, then its exit code."""
        self._signal(signal.SIGTERM)
        return await self.ended(timeout_s=timeout_s)

    async def ended(self, *, timeout_s: float = 120.0) -> int:
        """Its exit code once it has ended."""
        async with asyncio.timeout(timeout_s):
            await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


@asynccontextmanager
async def child(module: str, *args: object) -> AsyncIterator[Child]:
    """`python -m module args`, without the imports; killed at the end if it still runs."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
    # In a thread: the first start waits for the imports.
    started, output = await asyncio.to_thread(
        fork_server.start, module, list(map(str, args)), environment=environment
    )
    watched(started)
    reader, writer = await asyncio.open_connection(sock=output)
    one = Child(started, reader)
    try:
        yield one
    finally:
        one.kill()
        await one.ended()
        writer.close()
