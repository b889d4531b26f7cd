"""The clients while a real manager, worker and child go away under them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.pool.managing import ENVIRONMENT
from tests.integration.pool.test_together import Together, together
from tests.servers.reaper import watched

from cordata.errors import (
    CallCancelled,
    DeadlineExceeded,
    PoolRestarted,
    PoolUnavailable,
    WorkerCrashed,
)
from cordata.pool import Call, Client, SyncClient


async def running(client: Client, all_: Together, *calls: Call) -> None:
    """Until one of the calls is in hand, and the others wait."""

    def there() -> bool:
        status = all_.manager.status()
        return any(
            child["state"] == "busy" for worker in status["workers"] for child in worker["children"]
        )

    deadline = time.monotonic() + 20.0
    while not await asyncio.to_thread(there):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert not any(call.done() for call in calls)


async def test_killed_manager_fails_only_what_may_not_run_twice(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        async with Client(all_.manager.path, timeout=20.0) as client:
            once = client.start("wait", 1.0)
            often = client.start("echo", "page", idempotent=True)
            await running(client, all_, once, often)
            await asyncio.to_thread(all_.manager.end, signal.SIGKILL)
            with pytest.raises(PoolRestarted):
                await once
            later = client.start("echo", "later")
            all_.manager.start()
            assert (await often, await later) == ("page", "later")


async def test_restart_in_order_is_seen_by_nobody(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        async with Client(all_.manager.path, timeout=20.0) as client:
            calls = [client.start("wait", 0.3), *(client.start("echo", n) for n in range(20))]
            await running(client, all_, *calls)
            assert await asyncio.to_thread(all_.manager.end) == 0
            all_.manager.start()
            assert [await call for call in calls[1:]] == [*range(20)]
            await calls[0]


async def test_death_in_a_call_is_told_with_its_signal_and_last_words(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        async with Client(all_.manager.path, timeout=20.0) as client:
            with pytest.raises(WorkerCrashed) as caught:
                await client.execute("die", int(signal.SIGSEGV))
            assert caught.value.signal == signal.SIGSEGV
            assert caught.value.lines == ("last words",)
            assert await client.execute("echo", 1) == 1


async def test_hard_cancel_frees_the_child_of_a_command_that_hangs(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        async with Client(all_.manager.path, timeout=20.0) as client:
            call = client.start("hang")
            await running(client, all_, call)
            call.cancel(hard=True)
            with pytest.raises(CallCancelled):
                await call
            assert await client.execute("echo", 1) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_hard_cancel_of_a_sync_client_counts_though_that_is_gone(
    tmp_path: Path, stream: bool
) -> None:
    """As by Ctrl-C: the process ends right after it, and with it the connection."""
    code = """
import signal, sys
from cordata.pool import SyncClient
with SyncClient(sys.argv[1], hard_cancel=True) as client:
    list(client.stream("hang")) if sys.argv[2] == "True" else client.execute("hang")
"""
    with together(tmp_path) as all_, all_.worker():

        def child(status: dict[str, Any]) -> dict[str, Any]:
            return status["workers"][0]["children"][0]  # type: ignore[no-any-return]

        argv = [sys.executable, "-c", code, str(all_.manager.path), str(stream)]
        popen = subprocess.Popen(argv, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        with watched(popen) as process:
            busy = all_.manager.until(lambda found: child(found).get("call"), "it runs")
            assert busy["deadline_in_s"] > 50.0
            pid = child(all_.manager.status())["pid"]
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            process.wait(5.0)
            assert time.monotonic() - began < 2.0
        all_.manager.until(
            lambda found: child(found)["pid"] != pid and child(found)["state"] == "ready",
            "another child takes its place",
        )


async def test_hanging_command_ends_for_its_caller_at_the_deadline(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        async with Client(all_.manager.path, timeout=20.0) as client:
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded) as caught:
                await client.execute("hang", timeout=0.3)
            assert time.monotonic() - began < 1.5
            assert caught.value.ran
            assert await client.execute("echo", 1) == 1  # by another child, after the kill


def test_sync_client_finds_the_next_manager(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker(), SyncClient(all_.manager.path) as client:
        for number, end in enumerate((signal.SIGKILL, signal.SIGTERM)):
            assert client.execute("echo", number) == number
            all_.manager.end(end)
            all_.manager.start()
        assert client.execute("echo", "again") == "again"
        all_.manager.end(signal.SIGKILL)
        # Its socket is still there, as a service manager's would be: somebody may come.
        with pytest.raises(PoolUnavailable):
            client.execute("echo", timeout=0.3)


async def test_client_that_read_nothing_is_told_that_this_is_why(tmp_path: Path) -> None:
    settings = "max_frame_bytes = 1000000\nmax_session_bytes = 900000\n"  # 16 of them are too much
    with together(tmp_path, settings) as all_, all_.worker():
        async with Client(all_.manager.path, timeout=30.0) as client:
            first = client.start("wait", 0.3)  # the others are all there before it ends
            await running(client, all_, first)
            once = [client.start("much", 900_000) for _ in range(30)]
            often = [client.start("much", 900_000, idempotent=True) for _ in range(5)]
            await asyncio.sleep(0)  # they are sent at the end of this turn, the loop's last for now
            await asyncio.sleep(0)
            time.sleep(1.5)
            all_.manager.until_logged("reads nothing")
            ends = await asyncio.gather(*once, *often, return_exceptions=True)
            await first
        lost = [end for end in ends if isinstance(end, PoolRestarted)]
        assert 0 < len(lost) <= 30
        assert all("nothing was read here for" in str(error) for error in lost), str(lost[0])
        assert all(end == bytes(900_000) for end in ends if end not in lost)
