"""A child that cannot start is tried again after longer pauses each time, one that served, soon."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from pathlib import Path

from tests.integration.pool.child.born import COMMANDS, order
from tests.integration.pool.worker.kept import answered, expect, heard, keeping, managing

from cordata.core.pool.order import ChildEvent


async def test_pauses_between_starts_grow_to_the_longest(tmp_path: Path) -> None:
    spec = {"inits": (f"{COMMANDS}:broken_init",)}
    first_s, longest_s, starts = 0.1, 0.8, 8
    random.seed(4)  # each pause is a share of its length by chance
    async with managing(tmp_path) as manager:
        async with keeping(
            tmp_path / "pool.sock", spec=spec, restart_min_s=first_s, restart_max_s=longest_s
        ):
            worker, pauses = await manager.worker(), []
            await heard(worker, "started")
            for _ in range(starts):
                await heard(worker, "exited")
                ended = time.monotonic()
                await heard(worker, "started")
                pauses.append(time.monotonic() - ended)
    print([f"{pause:.2f}" for pause in pauses])
    assert sum(pauses) > starts * first_s, "more than if each were the first one"
    assert sorted(pauses)[starts // 2] < longest_s + 0.3, "no pause is longer than the longest"


async def test_child_that_was_killed_in_a_call_is_followed_after_the_shortest_pause(
    tmp_path: Path,
) -> None:
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock", restart_min_s=0.0):
        worker = await manager.worker()
        child, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        await answered(child, order("echo"))
        os.kill(hello.pid, signal.SIGKILL)
        await heard(worker, "exited")
        assert (await heard(worker, "started")).pid != hello.pid


async def test_child_for_which_the_machine_lacks_something_is_told_with_its_reason(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with managing(tmp_path) as manager, keeping(tmp_path / "pool.sock", restart_min_s=0.01):
        worker = await manager.worker()
        _, hello = await manager.child()
        await heard(worker, "started"), await heard(worker, "warm")
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # what is open stays
        try:
            os.kill(hello.pid, signal.SIGKILL)
            assert (await heard(worker, "exited")).pid == hello.pid
            lacking = await heard(worker, "exited")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (lacking.pid, lacking.why) == (0, "init")
        assert lacking.m == "no process could be started: Too many open files"
        while (event := await expect(worker, ChildEvent)).ev == "exited":
            assert event.pid == 0, "tried again before the limit was lifted"
        assert event.ev == "started"
        await heard(worker, "warm")
