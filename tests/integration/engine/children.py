"""Real child processes: started, read line by line, killed by their own pid."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.servers.reaper import watched

ROOT = Path(__file__).resolve().parents[3]


class Child:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid = process.pid

    async def line(self, *, timeout_s: float = 120.0) -> str:
        """Its next line of output; "" at its end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(timeout_s):
            return (await self.process.stdout.readline()).decode().strip()

    def kill(self) -> None:
        """kill -9."""
        os.kill(self.pid, signal.SIGKILL)

    async def stop(self, *, timeout_s: float = 120.0) -> int:
        """SIGTERM, then its exit code."""
        if self.process.returncode is None:
            os.kill(self.pid, signal.SIGTERM)
        return await self.ended(timeout_s=timeout_s)

    async def ended(self, *, timeout_s: float = 120.0) -> int:
        """Its exit code once it has ended."""
        async with asyncio.timeout(timeout_s):
            return await self.process.wait()


@asynccontextmanager
async def child(module: str, *args: object) -> AsyncIterator[Child]:
    """`python -m module args`; killed at the end if it still runs."""
    starting = asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *map(str, args),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
    )
    process = watched(await starting)
    one = Child(process)
    try:
        yield one
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
