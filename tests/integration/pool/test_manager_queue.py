"""The queues of a real manager: whose turn it is, how long one may wait, each pool by itself."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.integration.pool.managing import ENVIRONMENT, exited, managed
from tests.servers.reaper import watched

from cordata.core.pool.message import CallFrame, ErrorFrame, Result
from cordata.core.pool.order import Run


def test_higher_priority_goes_first_and_then_the_older_one(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.child() as child, manager.client() as client:
        client.send(CallFrame(1, "echo"))
        child.expect(Run)
        for id, priority in ((2, 0), (3, 0), (4, 9), (5, 9), (6, 1)):
            client.send(CallFrame(id, "echo", priority=priority))
        manager.until(lambda found: found["calls"] == 6, "all are there")
        order = []
        for id in (1, 4, 5, 6, 2, 3):
            child.send(Result(id))
            client.expect(Result)
            if id != 3:
                order.append(child.expect(Run).id)
        assert order == [4, 5, 6, 2, 3]


def test_time_in_the_queue_is_taken_from_the_time_to_run(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        began = time.monotonic()
        client.send(CallFrame(1, "echo", timeout_s=20.0))
        client.send(CallFrame(2, "echo", timeout_s=20.0))
        manager.until(lambda found: found["calls"] == 2, "both are there")
        time.sleep(0.5)
        with manager.child() as child:
            for id in (1, 2):
                left_s = child.expect(Run).d
                assert 20.0 - (time.monotonic() - began) - 0.1 < left_s <= 19.5
                time.sleep(0.2)
                child.send(Result(id))
                client.expect(Result)
            found = manager.status()["pools"]["default"]
            waited_ms = (time.monotonic() - began - 0.2) * 1000
            assert 700 <= found["wait_max_ms"] <= waited_ms
            assert found["wait_now_ms"] == 0


def test_longest_wait_of_who_still_waits_is_told(tmp_path: Path) -> None:
    with managed(tmp_path) as manager, manager.client() as client:
        client.send(CallFrame(1, "echo"))
        manager.until(lambda found: found["calls"], "it is there")
        time.sleep(0.6)
        client.send(CallFrame(2, "echo"))
        assert 600 <= manager.status()["pools"]["default"]["wait_now_ms"] < 20_000


SETTINGS = """
[pool]
max_waiting = 2
retries = 0
[pool.slow]
workers = ["1"]
commands = ["slow"]
max_waiting = 1
queue_timeout_s = 0.4
retries = 1
[pool.late]
workers = ["2"]
commands = ["late"]
call_timeout_s = 0.3
"""


def test_each_pool_has_limits_of_its_own(tmp_path: Path) -> None:
    with managed(tmp_path, SETTINGS) as manager, manager.client() as client:
        for id, command in enumerate(("slow", "slow", "echo", "echo", "echo", "late"), 1):
            client.send(CallFrame(id, command))
        ended = {}
        for _ in range(4):
            error = client.expect(ErrorFrame)
            ended[error.id] = error.code
        # One may wait for `slow`, two for the others; nobody came in time for the first and last.
        assert ended == {2: "saturated", 5: "saturated", 1: "queue_timeout", 6: "deadline"}
        pools = manager.status()["pools"]
        assert {name: found["waiting"] for name, found in pools.items()} == {
            "default": 2,
            "slow": 0,
            "late": 0,
        }


def test_death_in_a_pool_without_retries_is_told_and_in_another_the_call_runs_again(
    tmp_path: Path,
) -> None:
    cmds = ("echo", "slow")
    with managed(tmp_path, SETTINGS) as manager, manager.client() as client:
        for id, (command, worker) in enumerate((("echo", "0"), ("slow", "1")), 1):
            with manager.worker(worker, cmds=cmds) as told:
                child = manager.child(worker, start=id, cmds=cmds)
                client.send(CallFrame(id, command, idempotent=True))
                run = child.expect(Run)
                child.close()
                told.send(exited(id, sig=9, n=run.n))
                if command == "echo":
                    assert client.expect(ErrorFrame).code == "crashed"
                    continue
                with manager.child(worker, start=9, cmds=cmds) as other:
                    assert other.expect(Run).id == id


#: A client that is another process: one call, and its answer.
_MODEST = """
import sys
from cordata.pool import SyncClient
with SyncClient(sys.argv[1], timeout=20.0) as client:
    client.execute("echo")
"""


def test_client_that_fills_the_queue_leaves_places_where_clients_take_turns(tmp_path: Path) -> None:
    settings = "[pool]\nfair = true\nmax_waiting = 100\n"
    with managed(tmp_path, settings) as manager, manager.child() as child:
        with manager.client() as greedy:
            for id in range(1, 122):
                greedy.send(CallFrame(id, "echo"))
            for _ in range(30):
                assert greedy.expect(ErrorFrame).code == "saturated"
            argv = [sys.executable, "-c", _MODEST, str(manager.path)]
            modest = watched(subprocess.Popen(argv, env=ENVIRONMENT))
            manager.until(lambda found: found["calls"] == 122, "both are there")
            for _ in range(3):
                child.send(Result(child.expect(Run).id))
            assert modest.wait(20) == 0
