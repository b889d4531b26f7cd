"""`cordata server` and the children of its workers: started, stopped, killed and found again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.integration.server.running import forked_server, wait_gone

from cordata.errors import PoolUnavailable
from cordata.pool import SyncClient

APP = "tests.integration.pool.worker.pooled:app"


def client(state: Path, *, timeout: float = 60.0) -> SyncClient:
    return SyncClient(state / "run" / "pool", timeout=timeout)


def child_pids(state: Path) -> list[int]:
    with client(state) as pool:
        return [child["pid"] for worker in pool.status()["workers"] for child in worker["children"]]


def left(state: Path) -> list[str]:
    """Sockets and status pages of children and workers."""
    return [path.name for path in (state / "run" / "pool").rglob("*.s*")]


def test_command_runs_in_a_child_and_all_stop_in_order(tmp_path: Path) -> None:
    with forked_server(tmp_path, app=APP) as running:
        running.ready()
        with client(tmp_path) as pool:
            assert pool.execute("echo", [1, "two"]) == [1, "two"]
        children = child_pids(tmp_path)
        assert len(children) == 2
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        w0, w1, last = running.order("worker@0 exited", "worker@1 exited", "primary exited with 0")
        assert max(w0, w1) < last
        wait_gone(children)
        assert left(tmp_path) == []


def test_worker_has_no_child_for_an_application_without_commands(tmp_path: Path) -> None:
    with forked_server(tmp_path, workers=1) as running:
        running.ready()
        assert left(tmp_path) == []
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_worker_has_as_many_children_as_configured(tmp_path: Path) -> None:
    config = tmp_path / "cordata.toml"
    config.write_text("[pool]\nchildren = 3\n")
    with forked_server(tmp_path, "--config", str(config), app=APP, workers=1) as running:
        running.ready()
        with client(tmp_path) as pool:
            futures = [pool.submit("wait", 60.0) for _ in range(3)]
            assert len(set(child_pids(tmp_path))) == 3

            def states() -> list[str]:
                [worker] = pool.status()["workers"]
                return [child["state"] for child in worker["children"]]

            running.until(lambda: states() == ["busy"] * 3, "all children busy")
            for future in futures:
                future.cancel()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_server_says_which_worker_of_a_pool_it_does_not_start(tmp_path: Path) -> None:
    config = tmp_path / "cordata.toml"
    config.write_text(
        '[pool.slow]\nworkers = ["3"]\ncommands = ["slow"]\n'
        '[pool.half]\nworkers = ["1", "2", "x"]\ncommands = ["half"]\n'
        '[pool.good]\nworkers = ["0"]\ncommands = ["good"]\n'
    )
    with forked_server(tmp_path, "--config", str(config), app=APP, workers=2) as running:
        running.ready()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    told = [line.partition("[pool.")[2] for line in running.lines if "--workers" in line]
    assert told == [
        "slow] names worker 3, not started with --workers 2, so no worker takes its calls",
        "half] names workers 2, x, not started with --workers 2",
    ]
    assert "WARNING" in running.log


def test_sessions_outlive_the_server(tmp_path: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        with forked_server(tmp_path, app=APP, workers=1) as running:
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_worker_that_ends_starts_again_with_its_child_when_told_to_restart(
    tmp_path: Path, number: signal.Signals
) -> None:
    with forked_server(tmp_path, "--restart", app=APP, workers=1) as running:
        running.ready()
        before = child_pids(tmp_path)
        with client(tmp_path) as pool:
            pool.sessions.create("s", data={"n": 1})
            os.kill(running.pid_of("worker@0"), number)
            wait_gone(before)
            assert pool.execute("echo", "again") == "again"
            assert pool.sessions.get("s").data == {"n": 1}
        assert not set(child_pids(tmp_path)) & set(before)
        running.signal(signal.SIGTERM)
        assert running.wait() == (1 if number == signal.SIGKILL else 0)


def test_calls_go_to_the_other_worker_when_one_crashed_and_stays_down(tmp_path: Path) -> None:
    with forked_server(tmp_path, app=APP) as running:
        running.ready()
        with client(tmp_path) as pool:
            os.kill(running.pid_of("worker@0"), signal.SIGKILL)
            running.until_logged("it is not started again")
            assert [pool.execute("echo", n) for n in range(20)] == list(range(20))
            assert [worker["worker"] for worker in pool.status()["workers"]] == ["1"]
        running.signal(signal.SIGTERM)
        assert running.wait() == 1


def test_nothing_is_left_when_the_server_is_killed(tmp_path: Path) -> None:
    with forked_server(tmp_path, app=APP) as running:
        running.ready()
        with client(tmp_path) as pool:
            pool.execute("echo")
        pids = child_pids(tmp_path)
        pids += [running.pid_of(name) for name in ("primary", "worker@0", "worker@1")]
        running.process.kill()
        wait_gone([running.process.pid, *pids])


def test_second_server_on_a_directory_does_not_start_and_the_first_goes_on(tmp_path: Path) -> None:
    with forked_server(tmp_path, app=APP) as running:
        running.ready()
        children = child_pids(tmp_path)
        with forked_server(tmp_path, app=APP) as second:
            assert second.wait() == 1
            assert "another process runs as worker 0" in second.log
            assert "(stop it first; a second server needs a --state" in second.log
        with client(tmp_path) as pool:
            assert pool.execute("echo", 1) == 1
        assert child_pids(tmp_path) == children


def test_children_are_called_in_a_directory_with_a_long_name(tmp_path: Path) -> None:
    """Longer than the path of a unix socket may be."""
    state = tmp_path / ("x" * 100)
    with forked_server(state, app=APP, workers=1) as running:
        running.ready()
        with client(state) as pool:
            assert pool.execute("echo", 1) == 1
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_worker_serves_without_child_where_its_sockets_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "pool").write_text("a file in the place of the directory")
    with forked_server(tmp_path, app=APP, workers=1) as running:
        running.ready()
        running.until_logged("this worker has no pool child: .*sockets cannot be created")
        assert running.get("/") == {}
        with client(tmp_path, timeout=0.5) as pool, pytest.raises(PoolUnavailable):
            pool.execute("echo")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
