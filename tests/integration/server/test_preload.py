"""`cordata server` imports the application once and forks its children, where that can be done."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.integration.cli.command import python, write_config
from tests.integration.server.managed import managed_on
from tests.integration.server.running import APP, PATIENCE_S, refused, server
from tests.waiting import until

UNSHAREABLE = "tests.integration.server.unshareable:app"


def test_a_killed_worker_is_forked_again_with_all_that_systemd_would_give(tmp_path: Path) -> None:
    with server(tmp_path, "--restart", workers=1) as running:
        first = running.get("/facts")
        assert first["imported_by"] == running.process.pid
        os.kill(first["pid"], signal.SIGKILL)
        running.until_logged(r"worker@0 .* was killed by SIGKILL; starts again in 0\.")
        running.until_logged(r"worker@0 is ready \(pid", count=2)
        facts = running.get("/facts")
        assert facts["pid"] != first["pid"]
        assert facts["imported_by"] == facts["parent"] == running.process.pid
        assert facts["session"] == facts["pid"]
        assert facts["environment"] == {
            **first["environment"],
            "WATCHDOG_PID": str(facts["pid"]),
        }
        assert facts["command"][:3] == ["cordata", "worker", "0"]
        assert facts["descriptors"]["0"] == "/dev/null"
        # Nothing of the server's own: neither its selector nor the pair that its signals come by.
        kinds = sorted(name.partition(":")[0] for name in first["descriptors"].values())
        assert kinds == sorted(name.partition(":")[0] for name in facts["descriptors"].values())
        running.signal(signal.SIGTERM)
        assert running.wait() == 1


def test_a_forked_worker_has_the_descriptors_of_one_that_was_executed(tmp_path: Path) -> None:
    kinds = []
    for options in ((), ("--no-preload",)):
        with server(tmp_path, *options, workers=1) as running:
            facts = running.get("/facts")
            importer = facts["pid"] if options else running.process.pid
            assert facts["imported_by"] == importer
            names = facts["descriptors"].values()
            kinds.append(sorted(name.partition(":")[0] for name in names if "/proc/" not in name))
            running.signal(signal.SIGTERM)
            assert running.wait() == 0
    assert kinds[0] == kinds[1]


def test_a_forked_worker_imports_nothing_of_the_runtime_by_itself(tmp_path: Path) -> None:
    code = (
        "import sys; from cordata.supervisor.preload import import_all;"
        f"import_all(None, {APP!r}); print(*sys.modules)"
    )
    preloaded = set(python("-c", code, CORDATA_CONFIG=str(write_config(tmp_path))).stdout.split())
    assert "cordata.wiring.worker" in preloaded
    with server(tmp_path / "state", workers=1) as running:
        more = set(running.get("/facts")["modules"]) - preloaded
        # The server itself, or the command that it becomes, has imported those.
        program = ("cordata.cli", "cordata.supervisor", "cordata.terminal")
        late = {name for name in more if name.startswith("cordata.")}
        assert {name for name in late if not name.startswith(program)} == set()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_modules_of_all_that_a_worker_can_have_are_imported(tmp_path: Path) -> None:
    """They are named by texts: a wrong one would only be a line in the log, and no fork."""
    text = '[metrics]\nlisten = "127.0.0.1:9464"\n[broker]\nurl = "redis://127.0.0.1"\n'
    config = write_config(tmp_path, text, app="tests.integration.metrics.counted:app")
    code = "from cordata.supervisor.preload import import_all; import_all(None, None)"
    ended = python("-c", code, CORDATA_CONFIG=str(config))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_fork_calls_at_its_end_what_the_application_registered(tmp_path: Path) -> None:
    environment = {"AT_IMPORT": f"atexit:{tmp_path / 'end'}"}
    with server(tmp_path, app=UNSHAREABLE, workers=1, environment=environment) as running:
        worker = running.get("/facts")
        assert worker["imported_by"] == running.process.pid
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    ended = {path.name for path in tmp_path.glob("end-*")}
    assert {f"end-{worker['pid']}", f"end-{running.process.pid}"} < ended
    assert len(ended) == 3  # the primary, too


@pytest.mark.parametrize("what", ["thread", "open:{}/file"])
def test_children_are_executed_when_the_import_makes_what_a_fork_has_not(
    tmp_path: Path, what: str
) -> None:
    environment = {"AT_IMPORT": what.format(tmp_path)}
    with server(tmp_path, app=UNSHAREABLE, workers=1, environment=environment) as running:
        facts = running.get("/facts")
        assert facts["imported_by"] == facts["pid"]
        reason = "starts threads (1)" if what == "thread" else f"opens {tmp_path}/file"
        line = f"each process imports the application by itself: the import {reason}"
        assert running.log.count(line) == 1
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("fail", 78, "unshareable:app failed: RuntimeError: no more of this (at "),
        ("exit", 1, "worker@0 (pid "),
    ],
)
def test_an_import_that_fails_fails_in_the_children(
    tmp_path: Path, what: str, code: int, said: str
) -> None:
    environment = {"AT_IMPORT": what}
    with server(tmp_path, app=UNSHAREABLE, workers=1, environment=environment) as running:
        assert running.wait() == code
        assert said in running.log
        assert "Traceback" not in running.log and running.out == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_long_import(tmp_path: Path, number: signal.Signals) -> None:
    flag = tmp_path / "importing"
    environment = {"AT_IMPORT": f"sleep:{flag}"}
    with server(tmp_path, app=UNSHAREABLE, environment=environment) as running:
        until(flag.exists)
        running.signal(number)
        assert running.wait() == 0
        assert "Traceback" not in running.log and "is ready" not in running.log


def test_an_import_that_hangs_leaves_a_trace(tmp_path: Path) -> None:
    code = (
        "from cordata.supervisor.preload import preload;"
        f"preload(None, {UNSHAREABLE!r}, timeout_s=3.0)"
    )
    environment = {"AT_IMPORT": f"sleep:{tmp_path / 'importing'}"}
    result = python("-c", code, CORDATA_CONFIG=str(write_config(tmp_path)), **environment)
    assert result.returncode == 1
    assert "Timeout" in result.stderr and "unshareable.py" in result.stderr


def test_forked_workers_serve_on_the_sockets_that_the_server_was_given(tmp_path: Path) -> None:
    config = write_config(tmp_path, app=APP)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with managed_on(listening, config, "server", "--workers", "2") as running:
            running.until_ready()
            with urlopen(f"{url}/facts", timeout=PATIENCE_S) as response:
                facts = json.load(response)
            assert facts["imported_by"] == running.process.pid
            assert facts["descriptors"]["3"].startswith("socket:")
            assert running.stop()[0] == 0
        # It is the service manager's: connections wait for the next server.
        socket.create_connection(listening.getsockname(), PATIENCE_S).close()
    assert refused(url)
