"""A worker without its child, or with one that hangs, serves on, and says what it lacks."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.server.managed import managed
from tests.integration.server.running import forked_server, free_address
from tests.waiting import until

from cordata.errors import DeadlineExceeded, PoolUnavailable
from cordata.pool import SyncClient

APP = "tests.integration.server.pooling:app"


def post(address: str, path: str) -> Any:
    with urlopen(Request(f"http://{address}{path}", method="POST"), timeout=20.0) as answer:
        return json.load(answer)


def handled(address: str, number: int) -> bool:
    """Whether the event of this number was handled."""
    with urlopen(f"http://{address}/handled", timeout=20.0) as answer:
        return number in json.load(answer)


def test_http_and_events_run_and_calls_wait_while_the_child_is_stopped(tmp_path: Path) -> None:
    address = free_address()
    config = write_config(tmp_path, "[pool]\nhealth_timeout_s = 25.0\n", app=APP)
    with forked_server(
        None, "--config", str(config), "--listen", address, app=None, workers=1
    ) as running:
        running.ready()
        pid = child_of(running.pid_of("worker@0"))
        # Its socket takes connections, and nobody answers: the worst way to be away.
        os.kill(pid, signal.SIGSTOP)
        try:
            assert post(address, "/publish/1") == 1
            until(lambda: handled(address, 1))
            with SyncClient(tmp_path / "run" / "pool", timeout=0.3) as pool:
                with pytest.raises((DeadlineExceeded, PoolUnavailable)):
                    pool.execute("hurry")
            assert post(address, "/publish/2") == 2  # its handler calls the pool
            assert post(address, "/publish/3") == 3
            until(lambda: handled(address, 3))
            assert not handled(address, 2)
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: handled(address, 2))
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_worker_says_so_and_serves_on_while_its_child_starts_again(tmp_path: Path) -> None:
    """Its child's second start takes for ever."""
    flag = tmp_path / "slow"
    config = write_config(tmp_path, '[worker]\nservices = ["engine", "pool"]\n', app=APP)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    with managed(config, "worker", "0", POOLING_SLOW=str(flag)) as worker:
        worker.until_ready()
        worker.until(lambda message: message.get("STATUS") == "ready")
        flag.touch()
        os.kill(child_of(worker.process.pid), signal.SIGKILL)
        worker.until(lambda message: message.get("STATUS") == "ready; pool child starting")
        assert (
            cordata("call", "hurry", "--timeout", "0.2", "--config", str(config)).returncode == 75
        )
        seen = len(worker.messages)
        flag.unlink()
        worker.until(lambda message: message.get("STATUS") == "ready", after=seen)
        assert worker.stop()[0] == 0


def child_of(pid: int) -> int:
    found = [
        child
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    assert len(found) == 1
    return int(found[0])
