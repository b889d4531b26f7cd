"""A worker, its child or both stand still: every call ends within its deadline all the same.

What lies ahead at such a child cannot be had back while its worker does not say how far it came:
it may begin at any moment. So it waits, for its deadline at most; the others run elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.pool.test_ahead import Desk
from tests.integration.pool.test_together import Together, call, together
from tests.servers.process import children

from cordata.core.pool.message import ErrorFrame, Result
from cordata.errors import DeadlineExceeded
from cordata.pool import Client, SyncClient
from cordata.pool.client.wire import ANSWER_GRACE_S

TIMEOUT_S = 1.0
#: What this machine may be late.
SLACK_S = 1.0


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """They stand still meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def calm(all_: Together, workers: int) -> None:
    """Until each worker has a child that takes calls, and nothing is in hand."""
    all_.manager.until(
        lambda found: (
            [found["pools"]["default"][key] for key in ("ready", "busy", "other", "waiting")]
            == [workers, 0, 0, 0]
        ),
        "it is calm",
    )


@pytest.mark.parametrize("who", ["worker", "child", "both"])
def test_calls_end_within_their_deadline_when_this_stands_still(tmp_path: Path, who: str) -> None:
    with (
        together(tmp_path) as all_,
        all_.worker("0") as worker,
        all_.manager.client() as client,
    ):
        desk = Desk(all_, client, tmp_path / "ran")
        child = children(worker.process.pid)[0]
        pids = {"worker": [worker.process.pid], "child": [child]}.get(
            who, [worker.process.pid, child]
        )
        with all_.worker("1"):
            calm(all_, 2)
            with stopped(pids):
                # Both are in a long call soon, with others behind it.
                began = time.monotonic()
                desk.send(
                    {100: 30.0, 101: 30.0} | dict.fromkeys(range(102, 114), 0.0),
                    timeout_s=TIMEOUT_S,
                )
                ends = {}
                for _ in range(14):
                    said = client.any(20.0)
                    assert isinstance(said, Result | ErrorFrame)
                    ends[said.id] = (getattr(said, "code", "ok"), time.monotonic() - began)
                assert all_.manager.status()["sent_ahead"] > 0
            print(f"the last one ended after {max(at for _, at in ends.values()):.3f} s")
            assert max(at for _, at in ends.values()) < TIMEOUT_S + SLACK_S
            assert {code for code, _ in ends.values()} <= {"ok", "deadline"}
            calm(all_, 2)
            ran = desk.ran()
            assert len(ran) == len(set(ran))
            assert not {id for id, (code, _) in ends.items() if code == "ok"} - set(ran)
            assert call(client, "echo", 1, id=200) == 1


def test_death_behind_a_worker_that_stands_still_is_told_soon(tmp_path: Path) -> None:
    with (
        together(tmp_path) as all_,
        all_.worker("0") as worker,
        all_.manager.client() as client,
    ):
        desk = Desk(all_, client, tmp_path / "ran")
        child = children(worker.process.pid)[0]
        desk.send({100: 30.0} | dict.fromkeys(range(101, 105), 0.0), timeout_s=20.0)
        all_.manager.until(lambda status: desk.ran(), "the first one runs")
        with stopped([worker.process.pid]), all_.worker("1"):
            began = time.monotonic()
            os.kill(child, signal.SIGKILL)
            said = [client.any(20.0) for _ in range(5)]
            print(f"all are told of after {time.monotonic() - began:.2f} s")
            crashed = [one for one in said if isinstance(one, ErrorFrame)]
            assert [(one.id, one.code) for one in crashed] == [(100, "crashed")]
            assert {one.id for one in said if isinstance(one, Result)} == {101, 102, 103, 104}
            assert time.monotonic() - began < 5.0
        calm(all_, 1)


async def test_calls_end_soon_after_their_deadline_when_the_manager_stands_still(
    tmp_path: Path,
) -> None:
    with together(tmp_path) as all_, all_.worker(), SyncClient(all_.manager.path) as sync:
        async with Client(all_.manager.path) as client:
            assert await client.execute("echo", 1) == sync.execute("echo", 1) == 1
            running = client.start("wait", 0.3, timeout=TIMEOUT_S)
            await asyncio.sleep(0.1)
            with stopped([all_.manager.process.pid]):
                began = time.monotonic()
                calls = [client.execute("echo", n, timeout=TIMEOUT_S) for n in range(20)]
                late = asyncio.to_thread(sync.execute, "echo", 2, timeout=TIMEOUT_S)
                ends = await asyncio.gather(running, *calls, late, return_exceptions=True)
                took_s = time.monotonic() - began
            print(f"the last one ended after {took_s:.3f} s")
            assert took_s < TIMEOUT_S + ANSWER_GRACE_S + SLACK_S
            assert all(isinstance(end, DeadlineExceeded) for end in ends), ends
            assert await client.execute("echo", 3) == sync.execute("echo", 3) == 3
        calm(all_, 1)
