"""Every process of the hub is killed while forms come, hotel software reads, acknowledges and is
pushed what waits: what was accepted counts once, everywhere.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.server import guests
from tests.integration.server.guests import PEOPLE, Guest, Software, Told
from tests.integration.server.hubs import OPEN, Hub, hub
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.waiting import until

SEED = int(os.environ.get("CHAOS_SEED", "7"))
#: Kills, one of them of the whole server; each role at least once where nothing else is killed.
KILLS = int(os.environ.get("CHAOS_KILLS", "6"))
ROLES = ("worker@0", "worker@1", "primary", "child")
#: Each of these users is to get each request.
USERS = ("demo", "second", "pushed")
#: What the trail has of a request: once, and then once for each of them.
_TRAIL = "'received', 'delivered', 'acknowledged'"


class Life:
    """All who deal with a hub."""

    def __init__(self, made: Hub) -> None:
        self.hub = made
        makers = (guests.generic, guests.wix, guests.google, guests.form)
        self.guests = [Guest(make) for make in makers]
        self.software = [
            Software("demo", "demo"),
            Software("second", "second-password", large=True),
        ]
        self.told = Told()
        made.command(
            "account", "add", "second", "--hotel", "DEMO", "--password-stdin",
            given="second-password\n",
        )  # fmt: skip
        made.command(
            "account", "add", "pushed", "--hotel", "DEMO", "--password-stdin",
            given="third-password\n",
        )  # fmt: skip
        made.command(
            "account", "push", "set", "pushed", "--url", self.told.url, "--login", "hub",
            given="fourth-password\n",
        )  # fmt: skip

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Forms are sent while the block runs, and read until nothing waits."""
        leave, go = threading.Event(), threading.Event()
        served = threading.Thread(target=self.told.serve_forever)
        senders = [threading.Thread(target=one.run, args=(self.hub, leave)) for one in self.guests]
        readers = [threading.Thread(target=one.run, args=(self.hub, go)) for one in self.software]
        for thread in (served, *senders, *readers):
            thread.start()
        try:
            yield
        finally:
            leave.set()
            for thread in senders:
                thread.join()
            with contextlib.ExitStack() as stack:
                stack.callback(served.join)
                stack.callback(self.told.server_close)
                stack.callback(self.told.shutdown)
                for thread in readers:
                    stack.callback(thread.join)
                stack.callback(go.set)
                self._until_all_is_done()

    def _until_all_is_done(self) -> None:
        made = self.hub
        until(lambda: made.number(OPEN) == 0, "the last event handled", timeout_s=120)
        waiting = "SELECT count(*) FROM delivery WHERE waiting = 1 AND acked_at IS NULL"
        until(lambda: made.number(waiting) == 0, "the last delivery", timeout_s=120)
        # An event that was handed to Redis is in no table until it is handled.
        missing = f"""SELECT (SELECT count(*) FROM reservation) * {1 + 2 * len(USERS)}
            - (SELECT count(*) FROM reservation_history WHERE event IN ({_TRAIL}))"""
        until(lambda: made.number(missing) <= 0, "the last of the trail", timeout_s=120)
        until(lambda: made.number(OPEN) == 0, "the last event handled", timeout_s=120)

    def check(self) -> None:
        """What was promised is there, once."""
        made = self.hub
        accepted = {f"{kind}-{n}" for kind, one in zip("gwlf", self.guests, strict=True)
                    for n in range(one.accepted)}  # fmt: skip
        print(f"\n{len(accepted)} accepted, {[one.failures for one in self.guests]} sent again")
        assert len(accepted) > 20
        refused = [one.refused for one in self.guests] + [one.refused for one in self.software]
        assert refused == [[]] * 6
        rows = made.rows("SELECT reservation_id, data FROM reservation_version")
        said = [next(word for word in accepted if f'"{word}"' in data) for _, data in rows]
        assert sorted(said) == sorted(accepted)
        ids = {row[0] for row in rows}
        assert made.number("SELECT count(*) FROM reservation") == len(ids) == len(rows)
        inbox = made.rows("SELECT state, outcome, reservation_id FROM inbox")
        # One that was stored, and its sender never heard of it, came again.
        assert {state for state, _, _ in inbox} == {"mapped"}
        firsts = [one for _, outcome, one in inbox if outcome != "duplicate"]
        assert sorted(firsts) == sorted(ids)
        self._check_deliveries(ids)
        emails = "SELECT count(*), count(DISTINCT email) FROM customer"
        assert made.rows(emails) == [(PEOPLE, PEOPLE)]
        lost = "SELECT count(*) FROM reservation WHERE customer_id IS NULL"
        assert made.number(lost) == 0

    def _check_deliveries(self, ids: set[str]) -> None:
        made = self.hub
        for one in self.software:
            assert one.again == []
            assert one.done <= ids
        assert set(self.told.came) == ids
        events = f"""SELECT e.reservation_id, e.event, coalesce(u.name, '')
            FROM reservation_history e LEFT JOIN account u ON u.id = e.account_id
            WHERE e.event IN ({_TRAIL})"""
        expected = [(one, "received", "") for one in ids]
        expected += [
            (one, event, user) for one in ids for user in USERS
            for event in ("delivered", "acknowledged")
        ]  # fmt: skip
        assert sorted(made.rows(events)) == sorted(expected)


def shake(life: Life, acts: Sequence[Callable[[], None]], chance: random.Random) -> None:
    """One act after the other while all go on; then what was promised is looked for."""
    with life.going_on():
        for act in acts:
            time.sleep(chance.uniform(0.1, 0.6))
            act()
        until(lambda: sum(one.accepted for one in life.guests) > 20, "enough that is accepted")
    life.check()
    assert life.hub.stop() in (0, 1)
    assert "Traceback" not in life.hub.log and "@example.com" not in life.hub.log


def acts_on(made: Hub, others: Sequence[Callable[[], None]], chance: random.Random) -> list[Any]:
    """The others, the server, and so many processes of the hub that there are KILLS."""

    def again() -> None:
        made.kill("server")
        made.start()

    roles = chance.sample(ROLES, len(ROLES)) + [chance.choice(ROLES) for _ in range(KILLS)]
    acts: list[Callable[[], None]] = [*others, again]
    acts += [partial(made.kill, role) for role in roles[: KILLS - len(acts)]]
    chance.shuffle(acts)
    return acts


def test_every_request_counts_once_whatever_is_killed(tmp_path: Path) -> None:
    with hub(tmp_path) as made:
        chance = random.Random(SEED)
        shake(Life(made), acts_on(made, [], chance), chance)
        assert made.rows("PRAGMA integrity_check") == [("ok",)]


def test_every_request_counts_once_when_the_servers_are_killed_too(tmp_path: Path) -> None:
    """PostgreSQL comes back with its data, Redis without."""
    with PostgresServer() as postgres, RedisServer() as redis:
        name = postgres.create_database()

        def query(sql: str) -> list[tuple[Any, ...]]:
            return postgres.execute(sql, database=name)

        more = f'[store]\nurl = "{postgres.url(name)}"\n[broker]\nurl = "{redis.url}"\n'
        with hub(tmp_path, more=more, query=query) as made:
            chance = random.Random(SEED)
            others = [partial(kill_for_a_while, one) for one in (postgres, redis)]
            shake(Life(made), acts_on(made, others, chance), chance)


def kill_for_a_while(one: PostgresServer | RedisServer) -> None:
    """kill -9, and back after a moment."""
    one.kill()
    time.sleep(0.3)
    one.start()
