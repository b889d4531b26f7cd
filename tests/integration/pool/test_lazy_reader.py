"""Streams whose reader takes nothing: they hold no process until a far deadline."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.integration.pool.test_together import together

from cordata.errors import DeadlineExceeded
from cordata.pool import Client, SyncClient

SETTINGS = "unread_timeout_s = {}\n"
#: Nobody waits for so long: only the bound ends such a call.
FAR_S = 1e6
PATIENCE_S = 30.0


@pytest.mark.parametrize(
    ("command", "part_bytes", "credit"),
    [("endless", 1_000, 4), ("endless", 100_000, 1024), ("numbers_async", 1_000_000, 4)],
    ids=["no credit", "full socket", "async command"],
)
def test_stream_that_nobody_reads_gives_its_process_back(
    tmp_path: Path, command: str, part_bytes: int, credit: int
) -> None:
    with together(tmp_path, SETTINGS.format(1.0)) as all_, all_.worker():
        path = all_.manager.path
        with SyncClient(path, timeout=FAR_S) as lazy, SyncClient(path) as other:
            parts = lazy.stream(command, part_bytes, credit=credit)
            next(parts)
            assert other.execute("echo", 1, timeout=PATIENCE_S) == 1
            with pytest.raises(DeadlineExceeded, match="unread_timeout_s") as caught:
                for _ in range(credit + 1):  # what had been sent before
                    next(parts)
            assert caught.value.ran
            assert lazy.execute("echo", 2) == 2


async def test_stream_that_no_task_reads_gives_its_process_back(tmp_path: Path) -> None:
    with together(tmp_path, SETTINGS.format(1.0)) as all_, all_.worker():
        async with Client(all_.manager.path, timeout=FAR_S) as client:
            async with aclosing(client.stream("endless", credit=4)) as parts:
                await anext(parts)
                assert await client.execute("echo", 1, timeout=PATIENCE_S) == 1
                with pytest.raises(DeadlineExceeded, match="unread_timeout_s"):
                    async for _ in parts:
                        pass


async def test_stream_that_is_read_slowly_goes_on(tmp_path: Path) -> None:
    """Fewer parts than half of the window within the time."""
    with together(tmp_path, SETTINGS.format(4.0)) as all_, all_.worker("0"), all_.worker("1"):

        def sync_parts() -> list[int]:
            found = []
            with SyncClient(all_.manager.path, timeout=FAR_S) as client:
                for part in client.stream("numbers", 40, credit=32):
                    found.append(part)
                    time.sleep(0.8 if part < 10 else 0.0)
            return found

        async def async_parts() -> list[int]:
            found = []
            async with Client(all_.manager.path, timeout=FAR_S) as client:
                async for part in client.stream("numbers", 40, credit=32):
                    found.append(part)
                    await asyncio.sleep(0.8 if part < 10 else 0.0)
            return found

        blocking, awaiting = await asyncio.gather(asyncio.to_thread(sync_parts), async_parts())
        assert blocking == awaiting == [*range(40)]


def test_command_that_takes_long_between_its_parts_is_not_ended(tmp_path: Path) -> None:
    with together(tmp_path, SETTINGS.format(0.5)) as all_, all_.worker():
        with SyncClient(all_.manager.path, timeout=PATIENCE_S) as client:
            assert list(client.stream("wait", 2.0)) == ["done"]
