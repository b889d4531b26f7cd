"""The hub on PostgreSQL, with all its processes: from the webhook to the report, whatever dies."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.host import hotel_software
from tests.host.load import BOOKING
from tests.integration.server.running import ROOT, Server, forked_server, free_address
from tests.servers import fork_server
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched
from tests.waiting import until

#: Only reached when it fails; the machine may be busy.
PATIENCE_S = 60.0
#: What is still to be handled.
_OPEN = "SELECT count(*) FROM message"
_DAY = "SELECT to_char(now() AT TIME ZONE 'Europe/Rome', 'YYYY-MM-DD')"


class Hub:
    """Four workers and a primary on one database."""

    def __init__(self, running: Server, config: Path, database: PostgresServer, name: str) -> None:
        self.running = running
        self.config = config
        self.database = database
        self._name = name
        self.address = running.ready().split()[0].removeprefix("http://")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.database.execute(sql, database=self._name)

    def number(self, sql: str) -> int:
        return int(self.rows(sql)[0][0])

    def command(self, *words: str) -> str:
        """Run `alpinehub ...`; what it said."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "daemon")}
        argv = [*words, "--config", str(self.config)]
        done = fork_server.run("alpinehub", argv, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def post(self, number: int) -> http.client.HTTPResponse:
        """One booking, on a connection of its own; read to its end."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        body = BOOKING.replace("{n}", str(number))
        headers = {"X-Webhook-Secret": "demo", "Content-Type": "application/json"}
        with contextlib.closing(connection):
            connection.request("POST", "/api/webhook/generic", body, headers)
            response = connection.getresponse()
            response.read()
            return response

    def kill(self, role: str) -> None:
        """kill -9 of the process that last had the role, if it still lives."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.running.pid_of(role), signal.SIGKILL)

    def check(self, acknowledged: list[int]) -> list[str]:
        """Each accepted request is stored once and its event handled once; all reservations."""
        until(lambda: self.number(_OPEN) == 0, "the last event handled")
        stored = dict(self.rows("SELECT external_id, id FROM reservation"))
        assert {f"load-{number}" for number in acknowledged} <= stored.keys()
        assert self.number("SELECT count(*) FROM reservation") == len(stored)
        noted = self.rows("SELECT reservation_id FROM reservation_history WHERE event = 'received'")
        assert sorted(row[0] for row in noted) == sorted(stored.values())
        return list(stored.values())


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A server of this test's own: it is killed."""
    with PostgresServer() as server:
        yield server


def configure(directory: Path, url: str) -> Path:
    """The configuration of a host; its state is its own, its data is not."""
    directory.mkdir(exist_ok=True)
    credentials = directory / "credentials"
    credentials.mkdir(mode=0o700)
    (credentials / "master-key").write_text("5a" * 32)
    (credentials / "master-key").chmod(0o600)
    config = directory / "cordata.toml"
    config.write_text(
        f'[app]\nimport = "alpinehub.app:app"\n[store]\nurl = "{url}"\n[paths]\n'
        f'state = "{directory}"\nruntime = "{directory}/run"\ncredentials = "{credentials}"\n'
    )
    return config


@contextlib.contextmanager
def hub(directory: Path, database: PostgresServer, name: str) -> Iterator[Hub]:
    config = configure(directory, database.url(name))
    options = ("--restart", "--config", str(config), "--listen", free_address())
    with forked_server(None, *options, app=None, workers=4) as running:
        made = Hub(running, config, database, name)
        made.command("demo")
        yield made
        running.signal(signal.SIGTERM)
        running.wait()
        assert "Traceback" not in running.log


@contextlib.contextmanager
def load(hub: Hub, *, first: int, pause_s: float = 0.02) -> Iterator[dict[str, Any]]:
    """Bookings while the block runs, each sent until it is accepted; then what became of them."""
    settings = {
        "address": hub.address,
        "path": "/api/webhook/generic",
        "headers": {"X-Webhook-Secret": "demo"},
        "body": BOOKING,
        "connections": 8,
        "first": first,
        "pause_s": pause_s,
        "again": True,
        "timeout_s": 10.0,
    }
    result: dict[str, Any] = {}
    client = watched(
        subprocess.Popen(
            [sys.executable, str(ROOT / "tests/host/load_client.py"), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    try:
        assert client.stdout is not None and client.stdout.readline() == "started\n"
        yield result
    finally:
        output, _ = client.communicate(timeout=PATIENCE_S)
    result.update(json.loads(output))
    print(f"\n{len(result['acknowledged'])} accepted; {result['counts']}")


def fetch_all(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hotel's software reads and acknowledges until nothing waits; what it read."""
    monkeypatch.setattr(hotel_software, "_URL", f"http://{hub.address}/api/alpinebits")
    got: list[str] = []
    while ids := hotel_software.read():
        hotel_software.acknowledge(ids)
        got += ids
    return got


def test_every_request_counts_once_when_workers_and_the_server_are_killed(
    tmp_path: Path, database: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = database.create_database()
    with hub(tmp_path, database, name) as made:
        first_day = made.rows(_DAY)[0][0]
        chance, acknowledged = random.Random(5), []
        with load(made, first=0) as result:
            for _ in range(8):
                made.kill(f"worker@{chance.randrange(4)}")
                time.sleep(chance.uniform(0.1, 0.4))
            until(lambda: made.number("SELECT count(*) FROM reservation") > 50, "enough")
        acknowledged += result["acknowledged"]
        with load(made, first=100_000) as result:
            for _ in range(2):
                time.sleep(0.5)
                database.kill()
                until(lambda: made.post(1).status == 503, "the first 503")
                database.start()
                started = time.monotonic()
                until(lambda: made.post(1).status == 200, "the first 200")
                took_s = time.monotonic() - started
                print(f"\nPostgreSQL back: accepted again after {took_s:.1f} s")
        acknowledged += [*result["acknowledged"], 1]
        assert len(acknowledged) > 50
        reservations = made.check(acknowledged)
        assert sorted(fetch_all(made, monkeypatch)) == sorted(reservations)
        until(lambda: made.number(_OPEN) == 0, "the last event handled")
        told = Counter[str]()
        for day in {first_day, made.rows(_DAY)[0][0]}:  # midnight may have passed
            words = ("report", "--hotel", "DEMO", "--date", day, "--format", "json")
            report = json.loads(made.command(*words))
            told.update({name: report[name] for name in ("requests", "delivered", "acknowledged")})
        assert told["requests"] == told["delivered"] == told["acknowledged"] == len(reservations)
        taken = "SELECT count(*) FROM reservation_history WHERE event = 'acknowledged'"
        assert made.number(taken) == len(reservations)


def test_webhook_says_when_to_come_again_while_the_server_is_gone(
    tmp_path: Path, database: PostgresServer
) -> None:
    with hub(tmp_path, database, database.create_database()) as made:
        assert made.post(1).status == 200
        for end, begin in ((database.kill, database.start), (database.suspend, database.resume)):
            end()
            answers = [made.post(number) for number in range(2, 7)]
            assert {answer.status for answer in answers} == {503}
            assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers)
            begin()
            until(lambda: made.post(2).status == 200, "the first 200")
        assert made.number("SELECT count(*) FROM reservation WHERE external_id = 'load-1'") == 1


def test_other_primary_takes_over_when_the_first_is_killed(
    tmp_path: Path, database: PostgresServer
) -> None:
    """Two servers share a database; the second one's primary stands by."""
    name = database.create_database()
    with hub(tmp_path / "one", database, name) as first:
        with hub(tmp_path / "two", database, name) as second:
            second.running.until_logged("is a standby")
            leader = "SELECT term, holder FROM lease WHERE name = 'primary'"
            [(term, holder)] = first.rows(leader)
            first.running.process.kill()  # and with it its workers and its primary
            killed = time.monotonic()
            until(lambda: first.rows(leader)[0][0] > term, "another term")
            print(f"\nthe other primary leads after {time.monotonic() - killed:.1f} s")
            assert first.rows(leader)[0][1] != holder
            second.running.until_logged(r"primary, term \d+|leads", 1)
            assert second.post(1).status == 200
