"""Two hosts and a third with the data, under load, while hosts, links, servers and workers fail.

Each test prints how long it took to recover, and leaves the fleet whole. The first ones run on
PostgreSQL alone; from then on Redis carries the events of the same hosts.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from tests.host.load import Load
from tests.host.machine import Host, wait_for
from tests.host.package import Packages, install
from tests.system.fleet import ADDED, Fleet, fleet, install_again

from cordata.events import PRIMARY_LOST

#: A dead host's lock is gone within 10 s; system tests assert twice what is promised.
TAKEOVER_S = 2 * 10.0
#: Servers that come back are found again by themselves.
HEALED_S = 2 * 5.0
#: What Redis lost is published again, and handled, this long after it came back.
AGAIN_S = 2 * 10.0
#: The stream of new reservations.
RECEIVED = "cordata:stream:reservation.received"
_numbers = iter(range(0, 10_000_000, 100_000))


@pytest.fixture(scope="module")
def ropes(debs: Packages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The fleet on PostgreSQL alone."""
    with fleet(debs, tmp_path_factory.mktemp("newer")) as made:
        yield made


@pytest.fixture(scope="module")
def with_redis(ropes: Fleet) -> Fleet:
    """The same fleet once Redis is its broker, which it became without losing a request."""
    with under_load(ropes, ropes.one, ropes.two, timeout_s=30.0) as loads:
        ropes.use_redis()
    assert [load.failed for load in loads] == [{}, {}]
    return ropes


@contextmanager
def under_load(ropes: Fleet, *hosts: Host, timeout_s: float = 5.0) -> Iterator[list[Load]]:
    """Bookings to the hosts while the block runs; afterwards every one of them counts once."""
    acknowledged: set[int] = set()
    with ExitStack() as stack:
        loads: list[Load] = []
        for host in hosts:
            load = ropes.load(
                host, next(_numbers), connections=4, pause_s=0.05, timeout_s=timeout_s
            )
            loads.append(load.start())
            stack.callback(_end, load)
        yield loads
        for load in loads:
            load.stop()
            assert load.counts["ok"] > 0
            acknowledged.update(load.result["acknowledged"])
    print(f"\n{len(acknowledged)} accepted; {[load.counts for load in loads]}")
    took("the last event handled", ropes.settle())
    ropes.check(acknowledged)


def _end(load: Load) -> None:
    if not load.result:
        load.stop()


def took(what: str, seconds: float) -> None:
    """Tell how long a recovery took."""
    print(f"{what}: {seconds:.1f} s")


def serving(host: Host) -> bool:
    """Whether a host takes requests."""
    answer = host.run("curl", "-fsS", "-m", "5", "http://127.0.0.1:8080/api/ready", check=False)
    return "ready" in answer.stdout and answer.returncode == 0


def test_one_primary_leads_and_both_hosts_work(ropes: Fleet) -> None:
    with under_load(ropes, ropes.one, ropes.two):
        time.sleep(2)
    states = [host.systemctl("status", "primary") for host in (ropes.one, ropes.two)]
    assert sum("standby" in text for text in states) == 1
    assert sum("primary, term" in text for text in states) == 1


def test_status_has_the_processes_of_both_hosts(ropes: Fleet) -> None:
    found = [
        json.loads(host.run("cordata", "status", "--json", check=False).stdout)
        for host in (ropes.one, ropes.two)
    ]
    names = {host.run("hostname").stdout.strip() for host in (ropes.one, ropes.two)}
    assert len(names) == 2
    for one in found:
        alive = [(row["host"], row["name"]) for row in one["processes"] if row["alive"]]
        assert sorted(alive) == sorted(
            (host, f"worker-{number}") for host in names for number in range(4)
        )
    assert found[0]["primary"]["holder"] == found[1]["primary"]["holder"]
    assert found[0]["host"] != found[1]["host"]


def test_job_runs_once_when_both_hosts_call_it(ropes: Fleet) -> None:
    hosts = (ropes.one, ropes.two)
    runs = [host.popen("cordata", "job", "say-once") for host in hosts]
    for run in runs:
        _, errors = run.communicate(timeout=60)
        assert run.returncode in (0, 75), errors
    assert ropes.number("SELECT count(*) FROM job_said") == 1


def kill_workers(ropes: Fleet) -> None:
    """Some of both hosts, at random, while they have requests and events in hand."""
    chance, kills = random.Random(7), 0
    with under_load(ropes, ropes.one, ropes.two):
        end = time.monotonic() + 5
        while time.monotonic() < end or kills < 10:
            host = chance.choice((ropes.one, ropes.two))
            pid = host.main_pid(f"worker@{chance.randrange(4)}")
            if pid:
                kills += host.run("kill", "-KILL", pid, check=False).returncode == 0
            time.sleep(chance.uniform(0.05, 0.4))


def test_workers_lose_nothing_when_they_are_killed_at_random(ropes: Fleet) -> None:
    kill_workers(ropes)


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_fleet_heals_when_postgresql_was_away(ropes: Fleet, way: str) -> None:
    with under_load(ropes, ropes.one, ropes.two):
        time.sleep(1)
        getattr(ropes.servers.postgres, way)()
        refused = ropes.one.run(
            *("curl", "-sS", "-m", "20", "-D", "-", "-o", "/dev/null"),
            "http://127.0.0.1:8080/api/ready",
        ).stdout
        assert " 503 " in refused and "retry-after" in refused.lower()
        time.sleep(3)
        ropes.servers.postgres.start()
        healed = wait_for(
            lambda: serving(ropes.one) and serving(ropes.two),
            timeout_s=HEALED_S,
            what="both hosts serve again",
        )
        took(f"PostgreSQL back after {way}", healed)
        time.sleep(1)
    wait_for(lambda: "term" in status(ropes), timeout_s=TAKEOVER_S, what="a primary")


def status(ropes: Fleet) -> str:
    """What the leading primary says of itself."""
    return ropes.primary().props("primary.service", "StatusText")["StatusText"]


def test_workers_lose_nothing_when_they_are_killed_and_redis_has_the_events(
    with_redis: Fleet,
) -> None:
    kill_workers(with_redis)
    groups = with_redis.servers.redis.execute("XINFO GROUPS", RECEIVED)
    (group,) = groups  # that of say_received: the hub handles none of these
    assert group["entries-read"] > 0


@pytest.mark.parametrize("harm", ["stop", "kill", "empty", "lose_data"])
def test_no_event_is_lost_when_redis_is_stopped_or_emptied(with_redis: Fleet, harm: str) -> None:
    redis, primary = with_redis.servers.redis, with_redis.primary()
    cursor = primary.cursor()
    with under_load(with_redis, with_redis.one, with_redis.two) as loads:
        with with_redis.handlers_held():
            # Each process has some in hand, and more wait in Redis unread.
            wait_for(lambda: with_redis.stranded()[0] >= 50, what="events that only Redis has")
            getattr(redis, harm)()
        if not redis.running:
            time.sleep(1.5)
            redis.start()
        accepted = with_redis.number("SELECT count(*) FROM reservation")
        handled = wait_for(
            lambda: with_redis.number("SELECT count(*) FROM received_said") >= accepted,
            timeout_s=AGAIN_S,
            what="all that was accepted before handled",
        )
        took(f"Redis back after {harm}, as many handled as were accepted", handled)
    # What is accepted stands in PostgreSQL: nobody is refused for the want of Redis.
    assert [load.failed for load in loads] == [{}, {}]
    found = primary.journal("-u", "primary", since=cursor)
    said = [re.match(r"republished (\d+) messages", entry["MESSAGE"]) for entry in found]
    again = sum(int(match[1]) for match in said if match)
    print("published again:", again)
    assert (again > 0) == (harm in ("empty", "lose_data"))


def test_other_host_takes_over_when_power_is_lost(with_redis: Fleet) -> None:
    dead = with_redis.primary()
    term, _ = with_redis.term()
    with with_redis.mails_due(), under_load(with_redis, with_redis.one, with_redis.two):
        dead.lose_power()  # with requests that it has accepted a moment ago, and their events
        assert with_redis.number("SELECT count(*) FROM mail WHERE state = 'pending'") > 0
        taken = wait_for(
            lambda: with_redis.term()[0] > term, timeout_s=TAKEOVER_S, what="another primary"
        )
        took("primary's host dead, another leads", taken)
        assert with_redis.primary() is not dead
        time.sleep(1)
    install_again(with_redis, dead)
    wait_for(lambda: serving(dead), timeout_s=HEALED_S, what="the host is back")


@pytest.mark.parametrize("way", ["both", "in", "out"])
def test_only_one_leads_when_the_primary_is_cut_off(with_redis: Fleet, way: str) -> None:
    cut = with_redis.primary()
    term, _ = with_redis.term()
    cursor = cut.cursor()
    with with_redis.mails_due(), under_load(with_redis, with_redis.one, with_redis.two):
        cut.cut(way)  # type: ignore[arg-type]
        taken = wait_for(
            lambda: with_redis.term()[0] > term, timeout_s=TAKEOVER_S, what="another primary"
        )
        took(f"primary cut off ({way}), another leads", taken)
        # It stopped leading by itself, before another could begin: nobody could have told it.
        [lost] = cut.journal(f"MESSAGE_ID={PRIMARY_LOST}", since=cursor)
        begun = with_redis.number("SELECT acquired_at FROM lease WHERE name = 'primary'")
        before_us = begun - int(lost["__REALTIME_TIMESTAMP"])
        took("it had stopped leading before that", before_us / 1e6)
        assert before_us > 0
        cut.heal()
        healed = wait_for(lambda: serving(cut), timeout_s=HEALED_S, what="the host serves again")
        took("link healed, the host serves", healed)
        time.sleep(1)
    assert with_redis.primary() is not cut


def test_nothing_fails_when_one_host_after_the_other_is_upgraded(with_redis: Fleet) -> None:
    """The new version has a migration: the first host gets it while the other runs the old code."""
    hosts = (with_redis.one, with_redis.two)
    with under_load(with_redis, *hosts, timeout_s=30.0) as loads:
        time.sleep(1)
        # The one that does not lead first: its primary asks the other, of the old code, to go.
        for host in (with_redis.other(with_redis.primary()), with_redis.primary()):
            begun = time.monotonic()
            install(host, "/newer")
            wait_for(partial(serving, host), timeout_s=HEALED_S, what="the upgraded host")
            took("upgraded and serving", time.monotonic() - begun)
            assert with_redis.rows("SELECT count(*) FROM added_later") == [(0,)]
            time.sleep(0.5)
    assert [load.failed for load in loads] == [{}, {}]
    print("longest answers:", [load.result["max_ms"] for load in loads], "ms")
    for host in hosts:
        assert "+later" in host.sh("dpkg-query -W cordata")
        log = host.run("journalctl", "--no-pager", "-q", "-u", "primary").stdout
        assert ("handing over" in log) != (f"applied alpinehub {ADDED}" in log)
