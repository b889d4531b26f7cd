"""The hub on PostgreSQL as the README says, under load, while workers and the server are killed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.host.documents import commands
from tests.host.load import BOOKING, booking_load
from tests.host.machine import Host, find_tree, wait_for
from tests.host.network import Network, start_all
from tests.host.package import Packages, install
from tests.host.servers import ServerHost

URL = "http://127.0.0.1:8080"
#: Systems tests assert twice what is promised.
HEALED_S = 2 * 5.0


@pytest.fixture(scope="module")
def servers() -> Iterator[ServerHost]:
    """PostgreSQL as its packages leave it: without a role or database for the hub."""
    with Network() as network:
        host = ServerHost(find_tree(), network=network)
        try:
            start_all(host)
            for sql in ("DROP DATABASE cordata", "DROP ROLE cordata"):
                host.run("runuser", "-u", "postgres", "--", "psql", "-qc", sql)
            yield host
        finally:
            host.stop()


@pytest.fixture(scope="module")
def hub(debs: Packages, servers: ServerHost) -> Iterator[Host]:
    """The package, moved to PostgreSQL by what the documentation has its reader type."""
    with ExitStack() as stack:
        host = Host(find_tree(), network=servers.network, binds=debs.binds())
        stack.callback(host.stop)
        start_all(host)
        install(host)
        for prompt, machine in (("db# ", servers), ("hub# ", host)):
            typed = commands(prompt)
            assert typed
            for command in typed:
                there = command.replace("db.example.com", servers.address)
                machine.run("bash", "-euc", f"cd; {there}")
        host.run("alpinehub", "demo")
        yield host


def ask(servers: ServerHost, sql: str) -> str:
    """What psql prints for a query, on the server's own host."""
    command = ["runuser", "-u", "postgres", "--", "psql", "-qtA", "-d", "cordata", "-c", sql]
    return servers.run(*command).stdout.strip()


def post(host: Host, number: int) -> str:
    """One booking by curl; head, body and status of the answer."""
    command = ["curl", "-sS", "-i", "-m", "30", "-w", "\\n%{http_code}"]
    command += ["-H", "X-Webhook-Secret: demo", "-H", "Content-Type: application/json"]
    body = BOOKING.replace("{n}", str(number))
    return host.run(*command, "-d", body, f"{URL}/api/webhook/generic", check=False).stdout


def settle(servers: ServerHost) -> None:
    """Wait until every event was handled."""
    left = "SELECT count(*) FROM message"
    wait_for(lambda: ask(servers, left) == "0", timeout_s=60, what="the last event handled")


def check(servers: ServerHost, acknowledged: set[int]) -> set[str]:
    """Each accepted booking is there once, its event handled once; the ids of all of them."""
    settle(servers)
    stored = json.loads(ask(servers, "SELECT json_object_agg(external_id, id) FROM reservation"))
    assert {f"load-{number}" for number in acknowledged} <= stored.keys()
    assert ask(servers, "SELECT count(*) FROM reservation") == str(len(stored))
    noted = "SELECT json_agg(reservation_id) FROM reservation_history WHERE event = 'received'"
    assert sorted(json.loads(ask(servers, noted))) == sorted(stored.values())
    return set(stored.values())


def test_hub_keeps_nothing_on_its_own_host_when_it_is_told_where(
    hub: Host, servers: ServerHost
) -> None:
    assert post(hub, 1).endswith("200")
    assert ask(servers, "SELECT count(*) FROM reservation WHERE external_id = 'load-1'") == "1"
    assert "cordata.db" not in hub.run("cordata", "status", check=False).stdout
    shown = hub.run("cordata", "config", "show").stdout
    assert servers.address in shown and "a-long-secret" not in shown


def test_every_request_counts_once_when_workers_and_postgresql_are_killed(
    hub: Host, servers: ServerHost
) -> None:
    with booking_load(hub, first=1000, connections=8, again=True, timeout_s=10.0) as load:
        for number in range(6):
            pid = hub.main_pid(f"worker@{number % 4}")
            if pid:
                hub.run("kill", "-KILL", pid, check=False)
            time.sleep(0.3)
        for end, begin in (
            (servers.postgres.kill, servers.postgres.start),
            (servers.postgres.suspend, servers.postgres.resume),
        ):
            end()
            answer = post(hub, 2)
            assert answer.endswith("503") and "retry-after: " in answer.lower()
            begin()
            took_s = wait_for(
                lambda: post(hub, 2).endswith("200"), timeout_s=HEALED_S, what="the first 200"
            )
            print(f"\n{end.__name__}: accepted again after {took_s:.1f} s")
    assert load.counts["ok"] > 50
    reservations = check(servers, {*load.result["acknowledged"], 2})
    reads = json.loads(hub.run(*hub.python("hotel_software.py")).stdout)
    assert sorted(one for ids in reads for one in ids) == sorted(reservations)
    settle(servers)
    taken = "SELECT count(*) FROM reservation_history WHERE event = 'acknowledged'"
    assert ask(servers, taken) == str(len(reservations))


def test_status_is_down_when_postgresql_is_stopped(hub: Host, servers: ServerHost) -> None:
    wait_for(
        lambda: hub.run("cordata", "status", check=False).returncode in (0, 1),
        timeout_s=180,
        what="the start",
    )
    servers.systemctl("stop", "postgresql@*")
    done = hub.run("cordata", "status", "--json", check=False)
    servers.systemctl("start", "postgresql")
    document = json.loads(done.stdout)
    assert done.returncode == 2 and document["reasons"][0]["part"] == "store", document
    assert len(document["units"]) >= 6 and document["disk"]["state"] == "ok"
    ready = ("curl", "-fsS", "-m", "5", f"{URL}/api/ready")
    wait_for(lambda: hub.run(*ready, check=False).returncode == 0, timeout_s=180, what="readiness")


@pytest.mark.parametrize("victim", ["primary", "postgresql"])
def test_primary_leads_again_when_it_or_postgresql_was_killed(
    hub: Host, servers: ServerHost, victim: str
) -> None:
    def leads() -> bool:
        return "primary, term" in hub.props("primary", "StatusText")["StatusText"]

    term = "SELECT term FROM lease WHERE name = 'primary'"
    wait_for(leads, timeout_s=180, what="a primary, after what was done to it before")
    before = int(ask(servers, term))
    if victim == "primary":
        hub.kill("KILL", hub.main_pid("primary"))
    else:
        servers.postgres.kill()
        servers.postgres.start()
    wait_for(lambda: int(ask(servers, term)) > before, timeout_s=20, what="a new term")
    wait_for(leads, timeout_s=20, what="a primary that says so")
