"""Commands that call commands of their own pool, whose processes they hold."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.integration.pool.workers import workers

from cordata.errors import CommandFailed
from cordata.pool import SyncClient

PATIENCE_S = 60.0
#: echo and wait run elsewhere than the commands that call them.
INNER = '[pool.inner]\nworkers = ["1"]\ncommands = ["echo", "wait"]\n'


def refused_at_once(call: Future[Any]) -> None:
    """By a pool that is saturated; the inner call's deadline is a minute away."""
    with pytest.raises(CommandFailed, match=r"\[pool.NAME\]") as caught:
        call.result(PATIENCE_S)
    assert caught.value.type == "cordata.errors.PoolSaturated"


@pytest.mark.parametrize("nest", ["nest", "nest_async"])
def test_nested_call_is_refused_when_its_own_process_is_the_only_one(
    tmp_path: Path, nest: str
) -> None:
    with workers(tmp_path) as pool, pool.worker(), ThreadPoolExecutor(1) as threads:
        with SyncClient(pool.path, timeout=PATIENCE_S) as client:
            for pause_s in (0.0, 0.1, 0.0):
                inner = [str(pool.path), pause_s, "echo", 1]
                refused_at_once(threads.submit(client.execute, nest, inner))
            assert client.execute("echo", 2) == 2


def test_nested_calls_are_refused_when_all_processes_are_busy(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker("0"), pool.worker("1"):
        first, second = [SyncClient(pool.path, timeout=PATIENCE_S) for _ in "ab"]
        with first, second, ThreadPoolExecutor(1) as threads:
            waiting = first.submit("wait", 60.0)
            pool.until_running("wait")
            refused_at_once(
                threads.submit(second.execute, "nest", [str(pool.path), 0.1, "echo", 1])
            )
            assert not waiting.done()
            waiting.cancel()


def test_nested_call_is_refused_before_it_waits_when_the_children_are_known(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker(), SyncClient(pool.path, timeout=60.0) as client:
        refused_at_once(client.submit("nest_start", str(pool.path)))


def test_nested_call_runs_in_a_free_process(tmp_path: Path) -> None:
    with workers(tmp_path) as pool, pool.worker("0"), pool.worker("1"):
        with SyncClient(pool.path, timeout=PATIENCE_S) as client:
            for number in range(20):
                assert client.execute("nest", [str(pool.path), 0.0, "echo", number]) == number


def test_nested_call_waits_for_the_process_of_another_pool(tmp_path: Path) -> None:
    with workers(tmp_path, INNER) as pool, pool.worker("0"), pool.worker("1"):
        first, second = [SyncClient(pool.path, timeout=PATIENCE_S) for _ in "ab"]
        with first, second, ThreadPoolExecutor(1) as threads:
            busy = first.submit("wait", 60.0)
            pool.until_running("wait")
            nested = threads.submit(second.execute, "nest", [str(pool.path), 0.0, "echo", 1])
            pool.until_running("wait", "nest")
            assert not nested.done()
            busy.cancel()
            assert nested.result(PATIENCE_S) == 1
