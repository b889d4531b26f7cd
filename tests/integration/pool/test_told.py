"""Every step of a child's state is a line and a count: the manager's own, beside its status."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.integration.cli.command import cordata
from tests.integration.pool.managing import managed
from tests.integration.pool.test_together import QUICK, Together, call, refused

from cordata.core.pool.state import TRANSITIONS
from cordata.pool.fingerprint import start_of

_STEP = re.compile(r"child \d+ of worker \d+: (\w+ -> \w+)")


def told(all_: Together) -> Counter[str]:
    return Counter(found[1] for line in all_.manager.lines if (found := _STEP.search(line)))


def test_life_of_children_is_told_step_by_step_and_counted(tmp_path: Path) -> None:
    settings = QUICK + "health_s = 1.0\nhealth_timeout_s = 0.5\n"
    with managed(tmp_path, f'[log]\nlevel = "debug"\n[pool]\n{settings}') as manager:
        all_ = Together(tmp_path, manager, settings)
        with manager.client() as client:
            with all_.worker() as worker:
                pid = call(client, "about")["pid"]
                os.kill(pid, signal.SIGKILL)
                manager.until(lambda found: found["restarts"].get("crash"), "its end is told")
                assert call(client, "about")["pid"] != pid
                assert refused(client, "die", int(signal.SIGSEGV)).code == "crashed"
                call(client, "about")  # the next one is there
                assert refused(client, "hang", timeout_s=0.1).data == {"ran": True}
                pid = call(client, "about")["pid"]
                time.sleep(0.2)  # else it may be stopped within the call, which has its deadline
                os.kill(pid, signal.SIGSTOP)  # it answers no ping
                manager.until(lambda found: found["restarts"].get("unhealthy"), "it is replaced")
                assert call(client, "about")["pid"] != pid
                assert cordata("pool", "recycle", "0", "--config", str(all_.config)).returncode == 0
                manager.until(lambda found: found["stops"] == 1, "the former left in order")
                assert worker.stop()[0] == 0
            found: dict[str, Any] = manager.until(
                lambda status: not status["workers"] and status, "the worker is gone"
            )
        counted = found["transitions"]
        deadline = time.monotonic() + 10.0
        while told(all_) != counted and time.monotonic() < deadline:
            time.sleep(0.02)  # its lines are read by another thread
        assert told(all_) == counted
    steps = {
        f"{before.value} -> {to.value}" for before in TRANSITIONS for to in TRANSITIONS[before]
    }
    elsewhere = {
        "starting -> restarting",  # it could not be started, or warm up: worker/test_backoff
        "initializing -> restarting",
        "starting -> terminating",  # stopped while it starts, while it is in a call, ...
        "initializing -> terminating",
        "busy -> terminating",
        "unhealthy -> terminating",
        "ready -> unhealthy",  # its end may be seen before its worker's word: unit/pool
        "unhealthy -> ready",  # it answered after all
        "restarting -> terminating",  # its worker went first
    }
    assert set(counted) - steps == set()
    assert steps - set(counted) - elsewhere == set()


def test_registry_knows_worker_child_and_invocation_by_their_fingerprints(tmp_path: Path) -> None:
    with managed(tmp_path, f"[pool]\n{QUICK}") as manager:
        all_ = Together(tmp_path, manager, QUICK)
        with all_.worker("7", INVOCATION_ID="7" * 32) as worker, manager.client() as client:
            pid = call(client, "about")["pid"]
            (found,) = manager.status()["workers"]
            (child,) = found["children"]
            assert (found["worker"], found["invocation_id"]) == ("7", "7" * 32)
            supervisor = worker.process.pid
            assert (found["pid"], found["start"]) == (supervisor, start_of(supervisor))
            assert (child["pid"], child["start"]) == (pid, start_of(pid))
            assert [pid] == [int(one) for one in children_of(supervisor)]


def children_of(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text().split()]
