"""The worker's role with a pool child: when it is ready, and that nobody outlives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.integration.cli.command import cordata, write_config
from tests.integration.pool.child.born import order, value
from tests.integration.pool.peer import Listening, Peer
from tests.integration.server.managed import Managed, managed
from tests.integration.server.running import free_address, server, wait_gone
from tests.servers.process import wait_until

from cordata.core.pool.message import Hello, Result
from cordata.core.pool.order import ChildEvent, Drain, Ready

APP = "tests.integration.pool.worker.pooled:app"
SERVICES = '[worker]\nservices = ["engine", "pool"]\n'


@contextmanager
def worker_of(tmp_path: Path, settings: str = "", **environment: str) -> Iterator[Managed]:
    config = write_config(tmp_path, SERVICES + settings, app=APP)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    with managed(config, "worker", "0", **environment) as worker:
        yield worker


def met(manager: Listening) -> dict[str, tuple[Peer, Hello]]:
    """The worker and its child, in whatever order they come."""
    found: dict[str, tuple[Peer, Hello]] = {}
    for _ in "ab":
        peer, hello = manager.welcome(20.0)
        found[hello.role] = (peer, hello)
    assert set(found) == {"worker", "child"}
    return found


def part(found: dict[str, tuple[Peer, Hello]]) -> None:
    for peer, _ in found.values():
        peer.close()


def test_worker_is_ready_with_its_child(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with Listening(tmp_path / "run" / "pool.sock") as manager:
        with worker_of(tmp_path, INVOCATION_ID="1" * 32) as worker:
            found = met(manager)
            child, hello = found["child"]
            assert (hello.name, hello.inv) == ("0", "1" * 32)
            assert "remember" in found["worker"][1].cmds
            assert worker.until_ready()["STATUS"] == "ready"
            child.expect(Ready)
            child.send(order("note", [str(tmp_path / "began"), 1, 0.5]))
            wait_until((tmp_path / "began").exists, timeout_s=20.0, what="the call begins")
            code, log = worker.stop()
            assert (code, "killed" in log) == (0, False)
            child.expect(Result)  # the call in hand was ended
            assert [found["worker"][0].expect(ChildEvent).ev for _ in "ab"] == ["started", "warm"]
            found["worker"][0].expect(Drain)
            wait_gone([hello.pid])
            part(found)


def test_worker_is_ready_after_two_seconds_though_its_child_is_not(tmp_path: Path) -> None:
    """And there is no pool at all."""
    with worker_of(tmp_path, POOLED_INIT_S="8") as worker:
        began = time.monotonic()
        assert worker.until_ready()["STATUS"] == "ready; pool child starting"
        took_s = time.monotonic() - began
        print(f"ready after {took_s:.2f} s")
        assert 1.5 < took_s < 8.0
        worker.until(lambda message: message.get("STATUS") == "ready")
        assert worker.stop()[0] == 0


def test_worker_serves_http_while_its_child_starts(tmp_path: Path) -> None:
    address = free_address()
    config = write_config(tmp_path, "[pool]\nchild_start_timeout_s = 20.0\n", app=APP)
    options = ("--config", str(config), "--listen", address)
    environment = {"POOLED_INIT_S": "60"}
    with server(None, *options, app=None, workers=1, environment=environment) as running:
        deadline = time.monotonic() + 20.0
        while True:
            try:
                with urlopen(f"http://{address}/", timeout=20.0) as response:
                    assert response.status == 200
                    break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert "worker@0 is ready" not in running.log
        began = time.monotonic()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert time.monotonic() - began < 4.0  # it has no call that could be waited for


def test_nobody_outlives_a_killed_worker(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with Listening(tmp_path / "run" / "pool.sock") as manager, worker_of(tmp_path) as worker:
        found = met(manager)
        child, hello = found["child"]
        child.expect(Ready)
        child.send(order("hang"))
        worker.until_ready()
        time.sleep(0.2)
        began = time.monotonic()
        worker.process.kill()
        wait_gone([hello.pid])
        assert time.monotonic() - began < 2.0
        assert child.closed()
        part(found)


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
    (tmp_path / "run").mkdir()
    with Listening(tmp_path / "run" / "pool.sock") as manager, worker_of(tmp_path) as worker:
        found = met(manager)
        worker.until_ready()
        os.kill(found["child"][1].pid, signal.SIGKILL)
        peer, hello = manager.welcome(20.0)
        peer.expect(Ready)
        peer.send(order("echo", [1]))
        assert value(peer.expect(Result)) == [1]
        code, log = worker.stop()
        assert code == 0
        assert "ended by SIGKILL" in log
        assert hello.role == "child"
        peer.close()
        part(found)


def test_worker_without_commands_has_no_child(tmp_path: Path) -> None:
    config = write_config(tmp_path, SERVICES)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    (tmp_path / "run").mkdir(exist_ok=True)
    with Listening(tmp_path / "run" / "pool.sock") as manager, managed(config, "worker", "0") as w:
        w.until_ready()
        manager.socket.settimeout(0.2)
        try:
            manager.socket.accept()
        except TimeoutError:
            pass
        else:
            raise AssertionError("somebody dialled")
        maps = Path(f"/proc/{w.process.pid}/task").iterdir()
        assert [c for task in maps for c in (task / "children").read_text().split()] == []
        assert w.stop()[0] == 0
