"""The hub on PostgreSQL, with all its processes: from the webhook to the report, whatever dies."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.host.load import BOOKING
from tests.integration.server import hubs
from tests.integration.server.guests import Software
from tests.integration.server.hubs import OPEN, Answer, Hub
from tests.integration.server.running import PATIENCE_S, ROOT
from tests.servers.postgres import PostgresServer
from tests.servers.reaper import watched
from tests.waiting import until

_DAY = "SELECT to_char(now() AT TIME ZONE 'Europe/Rome', 'YYYY-MM-DD')"


def check(made: Hub, acknowledged: list[int]) -> list[str]:
    """Each accepted request is stored once and its event handled once; all reservations."""
    until(lambda: made.number(OPEN) == 0, "the last event handled")
    stored = dict(made.rows("SELECT external_id, id FROM reservation"))
    assert {f"load-{number}" for number in acknowledged} <= stored.keys()
    assert made.number("SELECT count(*) FROM reservation") == len(stored)
    noted = made.rows("SELECT reservation_id FROM reservation_history WHERE event = 'received'")
    assert sorted(row[0] for row in noted) == sorted(stored.values())
    return list(stored.values())


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A server of this test's own: it is killed."""
    with PostgresServer() as server:
        yield server


@contextlib.contextmanager
def hub(state: Path, database: PostgresServer, name: str) -> Iterator[Hub]:
    """Four workers and a primary on one database; the state of each host is its own."""
    more = f'[store]\nurl = "{database.url(name)}"\n'
    query = partial(database.execute, database=name)
    with hubs.hub(state, more=more, workers=4, query=query) as made:
        yield made
        made.stop()
        assert "Traceback" not in made.log


def post(made: Hub, number: int) -> Answer:
    """One booking."""
    headers = {"X-Webhook-Secret": "demo", "Content-Type": "application/json"}
    body = BOOKING.replace("{n}", str(number)).encode()
    return made.post("/api/webhook/generic", body, headers)


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


def test_every_request_counts_once_when_workers_and_the_server_are_killed(
    tmp_path: Path, database: PostgresServer
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
                until(lambda: post(made, 1).status == 503, "the first 503")
                database.start()
                started = time.monotonic()
                until(lambda: post(made, 1).status == 200, "the first 200")
                took_s = time.monotonic() - started
                print(f"\nPostgreSQL back: accepted again after {took_s:.1f} s")
        acknowledged += [*result["acknowledged"], 1]
        assert len(acknowledged) > 50
        reservations = check(made, acknowledged)
        software = Software("demo", "demo")
        while software.round(made):
            pass
        assert (software.done, software.again) == (set(reservations), [])
        until(lambda: made.number(OPEN) == 0, "the last event handled")
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
        assert post(made, 1).status == 200
        for end, begin in ((database.kill, database.start), (database.suspend, database.resume)):
            end()
            answers = [post(made, number) for number in range(2, 7)]
            assert {answer.status for answer in answers} == {503}
            assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers)
            begin()
            until(lambda: post(made, 2).status == 200, "the first 200")
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
            assert post(second, 1).status == 200
