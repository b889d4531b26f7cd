"""The shop of "From FastAPI and Celery", before and after: both do the same, for real."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from tests.host.documents import blocks
from tests.integration.server.running import PATIENCE_S, ROOT, server
from tests.servers.process import free_port
from tests.servers.reaper import watched
from tests.servers.redis import RedisServer
from tests.waiting import until

ITEMS = ["boots", "poles", "skis"]
TABLES = """
CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT, confirmed INTEGER DEFAULT 0);
CREATE TABLE figures (day TEXT PRIMARY KEY, orders INTEGER);
"""


def write_page(directory: Path) -> None:
    """The files of the page, as its reader makes them."""
    for language, comment in (("python", "# "), ("sql", "-- ")):
        for text in blocks(language):
            name = text.partition("\n")[0].removeprefix(comment)
            if re.match(r"celery_shop\.py|shop\.py|shop_sql/", name):
                path = directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    (directory / "shop_sql/__init__.py").touch()


def orders(url: str) -> list[dict[str, Any]]:
    with urlopen(f"{url}/orders", timeout=PATIENCE_S) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def buy(url: str) -> None:
    """Place the orders, and wait until the background work has confirmed each."""
    for item in ITEMS:
        body = json.dumps({"item": item}).encode()
        request = Request(f"{url}/orders", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.status == 201
    until(lambda: all(order["confirmed"] for order in orders(url)), "the confirmations")
    assert sorted(order["item"] for order in orders(url)) == ITEMS


def stored(database: Path) -> tuple[list[int], list[int]]:
    """How often each order was confirmed; the orders in each day's figures."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        confirmed = [row[0] for row in db.execute("SELECT confirmed FROM orders")]
        return confirmed, [row[0] for row in db.execute("SELECT orders FROM figures")]


@contextlib.contextmanager
def program(*words: str, cwd: Path, log: Path, environment: dict[str, str]) -> Iterator[None]:
    """A program of Python, stopped by TERM at the end."""
    with log.open("w") as output:
        process = watched(
            subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        orders(url)
    except URLError:
        return False
    return True


def test_shop_with_celery_confirms_each_order(tmp_path: Path, redis: RedisServer) -> None:
    for library in ("celery", "uvicorn"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    write_page(tmp_path)
    database = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(database)) as db:
        db.executescript(TABLES)
    environment = {**os.environ, "SHOP_REDIS": redis.url, "SHOP_DATABASE": str(database)}
    port = free_port()
    url, celery = f"http://127.0.0.1:{port}", ("celery", "-A", "celery_shop")
    web = program(
        *("uvicorn", "celery_shop:web", "--port", str(port)),
        cwd=tmp_path,
        log=tmp_path / "web.log",
        environment=environment,
    )
    worker = program(
        *(*celery, "worker", "--pool", "solo"),
        cwd=tmp_path,
        log=tmp_path / "worker.log",
        environment=environment,
    )
    with web, worker:
        until(lambda: answers(url), "the web server")
        buy(url)
        # What beat sends in the morning.
        call = [sys.executable, "-m", *celery, "call", "celery_shop.figures"]
        subprocess.run(call, cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
        until(lambda: stored(database)[1], "the figures")
    assert stored(database) == ([1, 1, 1], [3])


def test_shop_with_cordata_does_the_same(tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="FastAPI is not installed")
    write_page(tmp_path)
    path = os.pathsep.join(map(str, (ROOT / "daemon", tmp_path)))
    state = tmp_path / "state"
    with server(state, app="shop:app", environment={"PYTHONPATH": path}) as running:
        buy(running.ready())
        # What the timer starts in the morning; a second start does nothing.
        job = [sys.executable, "-m", "cordata", "job", "figures"]
        job += ["--app", "shop:app", "--state-dir", str(state)]
        for said in ("figures: 1 ran\n", "figures: nothing is due"):
            done = subprocess.run(
                job, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
            )
            assert done.returncode == 0 and done.stdout.startswith(said), done
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    assert stored(state / "cordata.db") == ([1, 1, 1], [3])
