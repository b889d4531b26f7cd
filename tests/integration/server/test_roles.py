"""Roles as a service manager sees them: when they are ready, what they wait for, reloads."""

from __future__ import annotations

import contextlib
import signal
import socket
import sqlite3
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata, python, write_config
from tests.integration.server.managed import managed, managed_on
from tests.integration.server.running import PATIENCE_S

ENGINE_ONLY = '[worker]\nservices = ["engine"]\n'


def test_worker_waits_for_the_schema_and_says_so(tmp_path: Path) -> None:
    config = write_config(tmp_path, ENGINE_ONLY)
    with managed(config, "worker", "0") as worker:
        waiting = worker.until_status("waiting for the schema")
        assert int(waiting["EXTEND_TIMEOUT_USEC"]) >= 10_000_000
        assert not worker.is_ready()
        with managed(config, "primary") as primary:
            primary.until_ready()
            worker.until_ready()
            assert worker.stop()[0] == 0
            assert worker.messages[-1] == {"STOPPING": "1", "STATUS": "stopping"}
            assert primary.stop()[0] == 0


@pytest.mark.parametrize("role", [("worker", "0", "--wait-for-config"), ("server",)])
def test_datagram_socket_ends_the_start_with_78(tmp_path: Path, role: tuple[str, ...]) -> None:
    """No worker answers 503 on the others until a reload, which would then leave that one out."""
    with (
        socket.create_server(("127.0.0.1", 0)) as good,
        socket.socket(type=socket.SOCK_DGRAM) as bad,
    ):
        bad.bind(("127.0.0.1", 0))
        with managed_on([good, bad], write_config(tmp_path), *role) as process:
            code, log = process.ended()
    assert code == 78 and "passed as 'http' is no stream socket" in log, log
    assert "ListenStream=" in log and "Traceback" not in log, log


def test_socket_that_does_not_listen_ends_the_start_with_78(tmp_path: Path) -> None:
    with socket.socket() as passed:
        passed.bind(("127.0.0.1", 0))
        with managed_on(passed, write_config(tmp_path), "server") as process:
            code, log = process.ended()
    assert code == 78 and "passed as 'http' does not listen" in log, log
    assert "listen()" in log and "Traceback" not in log, log


def test_roles_end_with_78_when_the_schema_is_of_a_newer_major(tmp_path: Path) -> None:
    config = write_config(tmp_path, ENGINE_ONLY)
    with managed(config, "primary") as primary:
        primary.until_ready()
        primary.stop()
    database = next(tmp_path.rglob("cordata.db"))
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "INSERT INTO migration (component, number, name, digest, applied_at)"
            " VALUES ('cordata', 1001, 'of_tomorrow', '', 0)"
        )
    for role in (["worker", "0"], ["primary"]):
        with managed(config, *role) as process:
            assert process.process.wait(PATIENCE_S) == 78


def test_worker_stops_at_once_when_told_to_while_it_waits(tmp_path: Path) -> None:
    with managed(write_config(tmp_path, ENGINE_ONLY), "worker", "0") as worker:
        worker.until_status("waiting for the schema")
        code, log = worker.stop()
        assert code == 0
        assert "is ready" not in log


def test_second_primary_stands_by_and_takes_over(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with managed(config, "primary") as first:
        assert "primary, term 1" in first.until_ready()["STATUS"]
        with managed(config, "primary") as second:
            assert second.until_ready()["STATUS"] == "ready; standby"
            first.process.kill()
            second.until_status("ready; primary, term 2")
            assert second.stop()[0] == 0


def test_reload_takes_over_the_log_level_and_says_when_it_cannot(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    good = config.read_text()
    with managed(config, "primary") as primary:
        primary.until_ready()
        config.write_text(good + '[log]\nlevel = "error"\n')
        primary.process.send_signal(signal.SIGHUP)
        reloading = primary.until(lambda message: message.get("RELOADING") == "1")
        assert reloading["MONOTONIC_USEC"].isdecimal()
        primary.until_ready(after=1 + primary.messages.index(reloading))
        config.write_text(good + "[log]\nlevle = 3\n")
        count = len(primary.messages)
        primary.process.send_signal(signal.SIGHUP)
        assert "reload refused" in primary.until_ready(after=count)["STATUS"]
        code, log = primary.stop()
        assert code == 0
        assert "[log] levle: unknown key; the nearest known is level" in log
        assert "primary is stopping" not in log  # an INFO line, and the level is error now


def test_watchdog_is_fed_at_half_its_time(tmp_path: Path) -> None:
    with managed(write_config(tmp_path), "primary", WATCHDOG_USEC="400000") as primary:
        primary.until_ready()
        for _ in range(3):
            count = len(primary.messages)
            primary.until(
                lambda message, n=count: (
                    message in primary.messages[n:]  # type: ignore[misc]
                    and "WATCHDOG" in message
                )
            )
        assert primary.stop()[0] == 0


def test_jobs_run_each_due_period_once(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with managed(config, "primary") as primary:
        primary.until_ready()
        first = cordata("job", "count", "--config", str(config))
        assert first.returncode == 0, first.stderr
        assert "counted north p1" in first.stderr
        assert "counted south p1" in first.stderr
        again = cordata("job", "count", "--config", str(config))
        assert again.returncode == 0
        assert "counted" not in again.stderr
        forced = cordata(
            *("job", "count", "--scope", "north", "--period", "p1", "--force"),
            *("--config", str(config)),
        )
        assert forced.returncode == 0
        assert "counted north p1" in forced.stderr
        failed = cordata("job", "fail", "--config", str(config))
        assert failed.returncode == 1
        assert primary.stop()[0] == 0


def test_server_tells_its_own_manager_when_all_are_ready(tmp_path: Path) -> None:
    config = write_config(tmp_path, app="tests.integration.server.tiny:app")
    options = ("--workers", "1", "--listen", "127.0.0.1:0", "--state", str(tmp_path / "state"))
    with managed(config, "server", *options) as running:
        assert running.until_ready()["STATUS"] == "1 workers ready"
        assert running.stop()[0] == 0
        assert running.messages[-1]["STOPPING"] == "1"


def test_supervisor_runs_from_a_program_of_ones_own(tmp_path: Path) -> None:
    script = (
        "from cordata.supervisor import Supervisor\n"
        "s = Supervisor(app='tests.integration.server.tiny:app', workers=2, test_mode=True,\n"
        f"               state={str(tmp_path)!r})\n"
        "assert s.run() == s.exit_code == 0\n"
        "print('done')\n"
    )
    result = python("-c", script)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_primary_has_time_of_its_own_when_a_worker_does_not_stop(tmp_path: Path) -> None:
    hanging = tmp_path / "hanging"
    script = f"""
import logging, os, signal, socket, threading, time
from cordata.supervisor import Supervisor

def ready(urls):
    host, port = urls[0].removeprefix("http://").split(":")
    sock = socket.create_connection((host, int(port)))
    sock.sendall(b"GET /hang HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    threading.Thread(target=stop).start()

def stop():
    while not os.path.exists({str(hanging)!r}):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

s = Supervisor(app="tests.integration.server.tiny:app", workers=1, listen=["127.0.0.1:0"],
               state={str(tmp_path)!r}, stop_timeout_s=5.0, watchdog_s=0, on_ready=ready)
logging.basicConfig(level="INFO")
assert s.run() == s.exit_code == 1
print("done")
"""
    result = python("-c", script, TINY_HANGING=str(hanging))
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    assert "worker@0 did not stop in time: SIGKILL" in result.stderr
    assert "primary exited with 0" in result.stderr
