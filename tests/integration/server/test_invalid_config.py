"""A worker whose configuration is invalid: 503 until a reload, and other workers go first."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata, python, write_config
from tests.integration.server.managed import Managed, managed, managed_on
from tests.integration.server.running import APP, PATIENCE_S

WAITING = ("worker", "0", "--wait-for-config")
BROKEN = "[http]\ndrian_s = 1\n"
MISTAKE = "[http] drian_s: unknown key; the nearest known is drain_s"


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """As systemd has it, whether a worker runs or not."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as sock:
        yield sock


def ask(listening: socket.socket) -> http.client.HTTPResponse:
    """One request on a connection of its own; one without an answer fails."""
    host, port = listening.getsockname()
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_S)
    try:
        connection.request("GET", "/facts")
        response = connection.getresponse()
        response.read()
        return response
    finally:
        connection.close()


def alerts(config: Path) -> list[dict[str, object]]:
    """What the primary will store, or has stored: it looks now and then."""
    waiting = config.parent / "state/alerts.waiting"
    lines = waiting.read_text().splitlines() if waiting.exists() else []
    with contextlib.closing(sqlite3.connect(config.parent / "state/cordata.db")) as store:
        store.row_factory = sqlite3.Row
        stored = [dict(row) for row in store.execute("SELECT cause, count, sample FROM alert")]
    return stored or [json.loads(line) for line in lines if line]


def is_waiting(worker: Managed) -> str:
    status = worker.until_ready()["STATUS"]
    assert status.startswith("answering 503, the configuration is invalid: ")
    return status


def test_worker_answers_503_until_a_reload_finds_a_valid_configuration(
    tmp_path: Path, listening: socket.socket
) -> None:
    config = write_config(tmp_path, app=APP)
    good = config.read_text()
    with managed(config, "primary") as primary:
        primary.until_ready()
        config.write_text(good + BROKEN + "[log]\nlevel = 'loud'\n")
        with managed_on(listening, config, *WAITING, WATCHDOG_USEC="10000000") as worker:
            status = is_waiting(worker)
            assert MISTAKE in status and "[log] level" in status
            refused = ask(listening)
            assert (refused.status, refused.headers["Retry-After"]) == (503, "30")
            [alert] = alerts(config)
            assert alert["cause"] == "config-invalid" and alert["count"] == 1
            assert "drian_s" in str(alert["sample"])

            # A reload that finds another mistake goes on in the same way.
            config.write_text(good + "[log]\nlevle = 'info'\n")
            seen = len(worker.messages)
            worker.process.send_signal(signal.SIGHUP)
            assert "[log] levle: unknown key" in worker.until_ready(after=seen)["STATUS"]
            assert ask(listening).status == 503

            config.write_text(good)
            seen = len(worker.messages)
            worker.process.send_signal(signal.SIGHUP)
            assert worker.until_ready(after=seen)["STATUS"].startswith("ready")
            # The watchdog runs on while the process starts anew: fed before and at once after it.
            fed = [n for n, one in enumerate(worker.messages[seen:]) if "WATCHDOG" in one]
            ready = [n for n, one in enumerate(worker.messages[seen:]) if "READY" in one]
            assert len([n for n in fed if n < ready[0]]) >= 2
            assert ask(listening).status == 200
            # Systemd would take STOPPING=1 for the end of the unit.
            assert not any("STOPPING" in message for message in worker.messages)
            assert worker.stop()[0] == 0
        assert primary.stop()[0] == 0


def test_worker_waits_when_what_it_needs_at_start_cannot_be_used(
    tmp_path: Path, listening: socket.socket
) -> None:
    config = write_config(tmp_path, app="tests.integration.none:app")
    good = config.read_text().replace("tests.integration.none:app", APP)
    with managed_on(listening, config, *WAITING) as worker:
        assert "[app] import: no module 'tests.integration.none'" in is_waiting(worker)
        assert worker.stop()[0] == 0
    # The schema of a newer release: found after the start, when the store is open.
    config.write_text(good)
    assert cordata("migrate", "--config", str(config)).returncode == 0
    connect = (
        'import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute("INSERT INTO migration'
        " (component, number, name, digest, applied_at) VALUES ('cordata', 1001, 'new', '', 0)\");"
        " c.commit()"
    )
    assert python("-c", connect, str(tmp_path / "state/cordata.db")).returncode == 0
    with managed_on(listening, config, *WAITING) as worker:
        assert "1001" in is_waiting(worker)
        assert ask(listening).status == 503
        assert worker.stop()[0] == 0


def test_worker_that_waits_takes_no_connection_while_another_one_serves(
    tmp_path: Path, listening: socket.socket
) -> None:
    config = write_config(tmp_path, app=APP)
    good = config.read_text()
    with managed(config, "primary") as primary:
        primary.until_ready()
        with managed_on(listening, config, "worker", "1") as serving:
            serving.until_ready()
            config.write_text(good + BROKEN)
            with managed_on(listening, config, *WAITING) as waiting:
                is_waiting(waiting)
                time.sleep(2.0)  # longer than it waits before it refuses
                assert [ask(listening).status for _ in range(50)] == [200] * 50
                serving.process.kill()
                serving.process.wait()
                assert ask(listening).status == 503
                assert waiting.stop()[0] == 0
        primary.stop()


def test_worker_ends_with_78_when_there_is_nothing_to_answer_on(tmp_path: Path) -> None:
    config = write_config(tmp_path, BROKEN, app=APP)
    with managed(config, *WAITING) as worker:
        assert worker.process.wait(PATIENCE_S) == 78
