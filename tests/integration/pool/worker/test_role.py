"""The worker's role with a pool child: when it is ready, and that nobody outlives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.server.managed import Managed, forked
from tests.integration.server.running import free_address, server, wait_gone
from tests.integration.store.parts import fill, needs_root, small_disk
from tests.waiting import until

from cordata.errors import ChildCrashed
from cordata.pool import SyncClient

APP = "tests.integration.pool.worker.pooled:app"
SERVICES = '[worker]\nservices = ["engine", "pool"]\n'


@contextmanager
def worker_of(tmp_path: Path, settings: str = "", **environment: str) -> Iterator[Managed]:
    config = write_config(tmp_path, SERVICES + settings, app=APP)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    with forked(config, "worker", "0", **environment) as worker:
        yield worker


def test_worker_is_ready_with_its_child(tmp_path: Path) -> None:
    settings = "[pool]\nchild_start_timeout_s = 60.0\n"
    with worker_of(tmp_path, settings) as worker, SyncClient(tmp_path / "run" / "pool") as client:
        assert worker.until_ready()["STATUS"] == "ready"
        [child] = children_of(worker.process.pid)
        assert client.execute("about")["pid"] == child
        running = client.submit("note", [str(tmp_path / "began"), 1, 0.5])
        until((tmp_path / "began").exists, timeout_s=20.0, what="the call begins")
        code, log = worker.stop()
        assert (code, "killed" in log) == (0, False)
        assert running.result(10.0) == 1  # the call in hand was ended
        wait_gone([child])


def test_worker_is_ready_after_two_seconds_though_its_child_is_not(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with worker_of(tmp_path, POOLED_INIT_WAITS_FOR=str(go)) as worker:
        began = time.monotonic()
        assert worker.until_ready()["STATUS"] == "ready; pool child starting"
        assert time.monotonic() - began > 1.5
        go.touch()
        worker.until(lambda message: message.get("STATUS") == "ready")
        assert worker.stop()[0] == 0


def test_worker_serves_http_while_its_child_starts(tmp_path: Path) -> None:
    address = free_address()
    config = write_config(tmp_path, "[pool]\nchild_start_timeout_s = 600.0\n", app=APP)
    options = ("--config", str(config), "--listen", address)
    environment = {"POOLED_INIT_S": "600"}
    with server(None, *options, app=None, workers=1, environment=environment) as running:
        deadline = time.monotonic() + 60.0
        while True:
            try:
                with urlopen(f"http://{address}/", timeout=20.0) as response:
                    assert response.status == 200
                    break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert "worker@0 is ready" not in running.log
        running.signal(signal.SIGTERM)
        assert running.wait() == 0  # there is no call that could be waited for


def test_nobody_outlives_a_killed_worker(tmp_path: Path) -> None:
    with worker_of(tmp_path) as worker, SyncClient(tmp_path / "run" / "pool") as client:
        worker.until_ready()
        [child] = children_of(worker.process.pid)
        running = client.submit("note", [str(tmp_path / "began"), 1, 600.0])
        until((tmp_path / "began").exists, timeout_s=20.0, what="the call begins")
        worker.process.kill()
        wait_gone([child])
        with pytest.raises(ChildCrashed):
            running.result(10.0)


def test_nobody_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with server(tmp_path, app=APP) as running:
        running.ready()
        workers = [running.pid_of("worker@0"), running.pid_of("worker@1")]
        children = [pid for worker in workers for pid in children_of(worker)]
        assert len(children) == 2
        running.signal(signal.SIGKILL)
        wait_gone([*workers, *children])


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def test_worker_goes_on_when_its_child_dies(tmp_path: Path) -> None:
    with worker_of(tmp_path) as worker, SyncClient(tmp_path / "run" / "pool") as client:
        worker.until_ready()
        [child] = children_of(worker.process.pid)
        assert client.execute("echo", [1]) == [1]
        os.kill(child, signal.SIGKILL)
        wait_gone([child])
        assert client.execute("echo", [1]) == [1]
        code, log = worker.stop()
        assert code == 0
        assert "was killed by SIGKILL" in log


def test_worker_keeps_as_many_children_as_it_is_told(tmp_path: Path) -> None:
    settings = "[pool]\nchildren = 3\nchild_start_timeout_s = 60.0\n"
    with worker_of(tmp_path, settings) as worker, SyncClient(tmp_path / "run" / "pool") as client:
        assert worker.until_ready()["STATUS"] == "ready"
        assert len(children_of(worker.process.pid)) == 3
        running = [client.submit("about", 0.3) for _ in range(9)]
        assert len({one.result(10.0)["pid"] for one in running}) == 3
        assert worker.stop()[0] == 0


def test_worker_without_commands_has_no_child(tmp_path: Path) -> None:
    config = write_config(tmp_path, SERVICES)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    with forked(config, "worker", "0") as worker:
        worker.until_ready()
        assert children_of(worker.process.pid) == []
        assert not (tmp_path / "run" / "pool").exists()
        assert worker.stop()[0] == 0


def test_worker_serves_without_children_when_their_directory_cannot_be_made_yet(
    tmp_path: Path,
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "pool").write_text("a file")
    with worker_of(tmp_path) as worker, SyncClient(tmp_path / "run" / "pool") as client:
        worker.until_ready()
        assert children_of(worker.process.pid) == []
        (tmp_path / "run" / "pool").unlink()
        assert client.execute("echo", 1) == 1
        code, log = worker.stop()
        assert (code, log.count("has no pool child")) == (0, 1)


@needs_root
def test_worker_replaces_its_child_when_the_runtime_directory_has_room_again(
    tmp_path: Path,
) -> None:
    settings = "[pool]\nrestart_first_s = 0.01\nrestart_max_s = 0.1\n"
    with small_disk(tmp_path / "run", size="1m") as disk, worker_of(tmp_path, settings) as worker:
        with SyncClient(disk / "pool", timeout=60.0) as client:
            pid = client.execute("about")["pid"]
            fill(disk / "filler")
            client.recycle("0")

            def why() -> str:
                assert worker.process.poll() is None, "the worker died"
                return "".join(one["start_error"] for one in client.status()["workers"])

            until(lambda: "No space left" in why())
            assert client.execute("about")["pid"] == pid
            (disk / "filler").unlink()
            until(lambda: client.execute("about")["pid"] != pid)
            assert worker.stop()[0] == 0
