"""`cordata server` runs the pool: started by its socket, stopped after the workers."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from tests.integration.server.running import Server, server, wait_gone

from cordata.errors import PoolUnavailable
from cordata.pool import SyncClient

APP = "tests.integration.pool.worker.pooled:app"


def client(state: Path, *, timeout: float = 30.0) -> SyncClient:
    return SyncClient(state / "run" / "pool.sock", timeout=timeout, operator=True)


def pool_pid(running: Server) -> int:
    found = running.until_logged(r"pool is ready \(pid (\d+)\)")[-1]
    match = re.search(r"pid (\d+)", found)
    assert match is not None
    return int(match[1])


def child_pids(state: Path) -> list[int]:
    with client(state) as pool:
        return [child["pid"] for worker in pool.status()["workers"] for child in worker["children"]]


def test_command_runs_in_a_child_and_all_stop_in_order(tmp_path: Path) -> None:
    with server(tmp_path, app=APP) as running:
        running.ready()
        with client(tmp_path) as pool:
            assert pool.execute("echo", [1, "two"]) == [1, "two"]
        manager = pool_pid(running)
        children = child_pids(tmp_path)
        assert len(children) == 2
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        w0, w1, last = running.order("worker@0 exited", "worker@1 exited", "pool exited with 0")
        assert max(w0, w1) < last
        wait_gone([manager, *children])
        assert not (tmp_path / "run" / "pool.sock").exists()


def test_pool_does_not_start_for_an_application_without_commands(tmp_path: Path) -> None:
    with server(tmp_path, "--debug", workers=1) as running:
        running.ready()
        assert (tmp_path / "run" / "pool.sock").is_socket()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert "pool started as" not in running.log


def test_server_says_which_worker_of_a_pool_it_does_not_start(tmp_path: Path) -> None:
    config = tmp_path / "cordata.toml"
    config.write_text(
        '[pool.slow]\nworkers = ["3"]\ncommands = ["slow"]\n'
        '[pool.half]\nworkers = ["1", "2", "x"]\ncommands = ["half"]\n'
        '[pool.good]\nworkers = ["0"]\ncommands = ["good"]\n'
    )
    with server(tmp_path, "--config", str(config), app=APP, workers=2) as running:
        running.ready()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    told = [line.partition("[pool.")[2] for line in running.lines if "--workers" in line]
    assert told == [
        "slow] names worker 3, not started with --workers 2, so nobody takes its calls",
        "half] names workers 2, x, not started with --workers 2",
    ]
    assert "WARNING" in running.log


def test_no_pool_leaves_it_out(tmp_path: Path) -> None:
    with server(tmp_path, "--no-pool", app=APP, workers=1) as running:
        running.ready()
        with client(tmp_path, timeout=0.5) as pool, pytest.raises(PoolUnavailable):
            pool.execute("echo")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_sessions_outlive_the_server_and_its_pool(tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        with server(tmp_path, app=APP, workers=1) as running:
            running.ready()
            with client(tmp_path) as pool:
                if number == signal.SIGKILL:
                    pool.sessions.create("s", data={"name": "Ada"})
                    pool.sessions.count("s", seen=2)
                    pool.globals.set(rate=7)
                found = pool.sessions.get("s")
                assert (found.data, found.counters) == ({"name": "Ada"}, {"seen": 2})
                assert pool.globals.get() == {"rate": 7}
                left = {"set": {"n": 1}, "gset": {"g": 2}}  # as the last one of the loop leaves it
                before = pool.execute(
                    "remember", {} if number == signal.SIGKILL else left, session="s"
                )
                assert (before["data"], before["globals"]) == ({"name": "Ada"}, {"rate": 7})
            running.signal(number)
            running.wait()


def test_crashed_pool_starts_again_when_told_to_restart(tmp_path: Path) -> None:
    with server(tmp_path, "--restart", app=APP, workers=1) as running:
        running.ready()
        with client(tmp_path) as pool:
            pool.sessions.create("s", data={"n": 1})
            os.kill(pool_pid(running), signal.SIGKILL)
            running.until_logged(r"pool \(pid \d+\) was killed by SIGKILL; starts again")
            running.until_logged(r"pool is ready \(pid", count=2)
            assert pool.execute("echo", "again", idempotent=True) == "again"
            assert pool.sessions.get("s").data == {"n": 1}
        running.signal(signal.SIGTERM)
        assert running.wait() == 1


def test_crashed_pool_stays_down_and_the_rest_runs_on(tmp_path: Path) -> None:
    with server(tmp_path, app=APP, workers=1) as running:
        running.ready()
        with client(tmp_path) as pool:
            pool.execute("echo")
        os.kill(pool_pid(running), signal.SIGKILL)
        running.until_logged("the pool stays down")
        with client(tmp_path, timeout=0.5) as pool, pytest.raises(PoolUnavailable):
            pool.execute("echo")
        running.signal(signal.SIGTERM)
        assert running.wait() == 1


@pytest.mark.parametrize("options", [(), ("--restart",)])
def test_pool_that_ends_in_order_starts_again_and_nobody_notices(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """As `systemctl stop pool.service` does it: its socket has callers."""
    with server(tmp_path, *options, app=APP, workers=1) as running:
        running.ready()
        with client(tmp_path) as pool:
            pool.sessions.create("s", data={"n": 1})
            os.kill(pool_pid(running), signal.SIGTERM)
            running.until_logged("pool exited with 0; starts again")
            assert pool.execute("echo", "again") == "again"
            assert pool.sessions.get("s").data == {"n": 1}
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert running.log.count("pool exited with 0") == 2


def test_nothing_is_left_when_the_server_is_killed(tmp_path: Path) -> None:
    with server(tmp_path, app=APP) as running:
        running.ready()
        with client(tmp_path) as pool:
            pool.execute("echo")
        pids = [pool_pid(running), *child_pids(tmp_path)]
        pids += [running.pid_of(name) for name in ("primary", "worker@0", "worker@1")]
        running.process.kill()
        wait_gone([running.process.pid, *pids])


def test_second_server_on_a_directory_does_not_start_and_the_first_goes_on(tmp_path: Path) -> None:
    with server(tmp_path, app=APP) as running:
        running.ready()
        children = child_pids(tmp_path)
        with server(tmp_path, app=APP) as second:
            assert second.wait() == 1
            assert "another server, or pool.service, listens on " in second.log
            assert (
                "(stop it, or choose another --state; --no-pool runs without a pool)" in second.log
            )
        with client(tmp_path) as pool:
            assert pool.execute("echo", 1) == 1
        assert child_pids(tmp_path) == children


def test_server_without_place_for_the_socket_runs_without_pool(tmp_path: Path) -> None:
    state = tmp_path / ("x" * 100)
    with server(state, workers=1) as running:
        running.ready()
        running.until_logged("there is no pool: .*pool.sock")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
