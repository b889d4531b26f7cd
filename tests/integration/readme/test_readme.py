"""What README.md tells a developer to type, typed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.readme import README, blocks, commands

CHECKOUT = README.parent
TIMEOUT_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def ready(argv: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A server that has said `ready URL`; stopped by TERM at the end, and its exit code is 0."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            argv,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment},
        )
        killer = threading.Timer(TIMEOUT_S, process.kill)
        killer.start()
        try:
            assert process.stdout
            lines = iter(process.stdout.readline, "")
            assert any(line.startswith("ready http://") for line in lines), log.read_text()
            yield process
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait() == 0, log.read_text()
        finally:
            killer.cancel()
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def run_shell(script: str) -> str:
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_first_request_is_received_read_and_acknowledged_when_typed(tmp_path: Path) -> None:
    port = free_port()
    post, read, acknowledge = (
        block.replace("127.0.0.1:8080", f"127.0.0.1:{port}") for block in blocks("sh")
    )
    argv = [sys.executable, "packaging/run.py", str(port), str(tmp_path / "state")]
    with ready(argv, tmp_path / "log", PYTHONPATH="daemon"):
        reservation_id = json.loads(run_shell(post))["id"]
        first = run_shell(read)
        assert re.findall(r'<UniqueID Type="14" ID="(\w+)"', first) == [reservation_id]
        assert reservation_id in run_shell(read)
        assert "<Success" in run_shell(acknowledge.replace('ID="ID"', f'ID="{reservation_id}"'))
        assert reservation_id not in run_shell(read)


def test_application_of_the_readme_handles_its_event_once_when_run(tmp_path: Path) -> None:
    write_application(tmp_path)
    command = next(line for line in commands("$ ") if line.startswith("cordata server"))
    port = free_port()
    state = tmp_path / "state"
    there = command.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("./data", str(state))
    argv = [sys.executable, "-m", "cordata", *there.split()[1:]]
    path = os.pathsep.join([str(CHECKOUT / "daemon"), str(tmp_path)])
    database = state / "cordata.db"
    with ready(argv, tmp_path / "log", PYTHONPATH=path):
        url = f"http://127.0.0.1:{port}/book/7"
        answer = run_shell(f"{sys.executable} -c {_POST!r} {url}")
        event = json.loads(answer)["event"]
        deadline = time.monotonic() + 10
        while not (mails(database) and stays(database)) and time.monotonic() < deadline:
            time.sleep(0.02)
        own = {"STATE_DIRECTORY": str(state), "CORDATA_RUNTIME": str(state / "run")}
        job = [sys.executable, "-m", "cordata", "job", "tally", "--app", "bookings:app"]
        done = subprocess.run(
            job, env={**os.environ, **own, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0 and "1 stays until 20" in done.stderr, done
    assert mails(database) == [("Booked", "7")]
    assert stays(database) == [(event, "7")]


def write_application(directory: Path) -> None:
    """The files of "An application of your own", as its reader makes them."""
    (directory / "bookings.py").write_text("\n\n".join(blocks("python")))
    text = README.read_text()
    places = re.findall(r"`(bookings_sql/[\w/]+\.sql)`", text)
    assert len(places) == len(blocks("sql")) == 2
    for place, body in zip(places, blocks("sql"), strict=True):
        (directory / place).parent.mkdir(parents=True, exist_ok=True)
        (directory / place).write_text(body)


_POST = (
    "import sys, urllib.request as u;"
    ' print(u.urlopen(u.Request(sys.argv[1], method="POST"), timeout=9).read().decode())'
)


def mails(database: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT subject, text FROM mail").fetchall()


def stays(database: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT event_id, room FROM stay").fetchall()


def test_make_targets_of_the_readme_exist_when_listed() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    wanted = [line.split()[1] for line in commands("$ ") if line.startswith("make ")]
    assert wanted and set(wanted) <= set(targets)
