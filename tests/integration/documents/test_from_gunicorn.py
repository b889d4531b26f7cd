"""The help desk of "From gunicorn and cron", before and after: both do the same, for real."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from tests.host.documents import blocks
from tests.integration.documents.test_from_celery import program
from tests.integration.server.running import PATIENCE_S, ROOT, server
from tests.servers.process import free_port
from tests.waiting import until

TEXTS = ["printer", "wlan", "door"]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A directory with the files of the page, and the desk's own database."""
    for library in ("flask", "gunicorn", "a2wsgi"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    for text in blocks("python"):
        if name := re.match(r"# (desk|digest|desk_app)\.py\n", text):
            (tmp_path / f"{name[1]}.py").write_text(text)
    alter(tmp_path, "CREATE TABLE tickets (text TEXT); CREATE TABLE digests (day, tickets)")
    return tmp_path


def alter(desk: Path, script: str) -> None:
    with contextlib.closing(sqlite3.connect(desk / "desk.db")) as db:
        db.executescript(script)


def environment(desk: Path) -> dict[str, str]:
    path = os.pathsep.join(map(str, (ROOT / "daemon", desk)))
    return {**os.environ, "DESK_DATABASE": str(desk / "desk.db"), "PYTHONPATH": path}


def post(url: str, text: str) -> dict[str, Any]:
    body = json.dumps({"text": text}).encode()
    request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=PATIENCE_S) as answer:
        assert answer.status == 201
        found: dict[str, Any] = json.load(answer)
    return found


def tickets(url: str) -> list[str] | None:
    """The desk's tickets; None if nobody answers yet."""
    try:
        with urlopen(f"{url}/tickets", timeout=PATIENCE_S) as answer:
            found: list[str] = json.load(answer)
    except URLError:
        return None
    return found


def digests(desk: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(desk / "desk.db")) as db:
        return [row[0] for row in db.execute("SELECT tickets FROM digests")]


def test_desk_with_gunicorn_and_cron_takes_tickets_and_writes_a_digest(desk: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    words = ("gunicorn", "desk:web", "--workers", "2", "--bind", f"127.0.0.1:{port}")
    settings = {"cwd": desk, "environment": environment(desk)}
    with program(*words, log=desk / "log", **settings):  # type: ignore[arg-type]
        until(lambda: tickets(url) is not None, "the web server")
        for text in TEXTS:
            assert post(f"{url}/tickets", text) == {"text": text}
        assert tickets(url) == TEXTS
    lock = ["flock", "-n", str(desk / "lock"), sys.executable, "digest.py"]
    for _ in range(2):  # the lock is of one run at a time: a second one writes it again
        subprocess.run(lock, cwd=desk, env=environment(desk), check=True)
    assert digests(desk) == [3, 3]


def test_desk_with_cordata_does_the_same_and_its_digest_once(desk: Path) -> None:
    state = desk / "state"
    with server(state, app="desk_app:app", environment=environment(desk)) as running:
        url = running.ready()
        for text in TEXTS:
            assert post(f"{url}/tickets", text) == {"text": text}
        assert tickets(url) == TEXTS
        job = [sys.executable, "-m", "cordata", "job", "digest"]
        job += ["--app", "desk_app:app", "--state-dir", str(state)]
        # One that fails ends with the code that raises an alert; the next start tries it again.
        alter(desk, "ALTER TABLE digests RENAME TO away")
        failed = subprocess.run(job, env=environment(desk), capture_output=True, text=True)
        assert failed.returncode == 1 and "OperationalError" in failed.stderr, failed
        alter(desk, "ALTER TABLE away RENAME TO digests")
        for said in ("digest: 1 ran\n", "digest: nothing is due"):
            done = subprocess.run(job, env=environment(desk), capture_output=True, text=True)
            assert done.returncode == 0 and done.stdout.startswith(said), done
        assert digests(desk) == [3]
        assert len(post(f"{url}/urgent", "water")["event"]) == 32
        until(lambda: mails(state) == [("Urgent", "water")], "the mail")
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def mails(state: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(state / "cordata.db")) as db:
        return db.execute("SELECT subject, text FROM mail").fetchall()
