"""Two hosts that run the hub, and a third with PostgreSQL and Redis."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.host.load import Load, booking_load
from tests.host.machine import Host, find_tree, wait_for
from tests.host.network import Network, start_all
from tests.host.package import later_version
from tests.host.servers import SECRET, USER, ServerHost

#: The application of the tests: the hub, a primary that says its term ten times a second, a job.
APP = """
from alpinehub.app import app

app.queries("fleet_sql")

@app.every(seconds=0.1)
async def say_term(ctx):
    async def unit(tx):
        await tx.write("say_term", term=ctx.term, at=tx.now_us)
    await ctx.run(unit)

@app.job("say-once")
async def say_once(ctx, scope, period):
    async def unit(tx):
        await tx.write("say_job", period=period)
    await ctx.run(unit)
"""
SQL = "-- name: say_term\nINSERT INTO term_said (term, at) VALUES (:term, :at)\n"
SQL += "-- name: say_job\nINSERT INTO job_said (period) VALUES (:period)\n"
TABLES = "CREATE TABLE term_said (id bigserial PRIMARY KEY, term bigint, at bigint);"
TABLES += "CREATE TABLE job_said (period text)"
KEY = "5a" * 32
#: The migration of the later version.
MIGRATION = "usr/share/cordata/alpinehub/sql/postgres/migrations/0002_added.sql"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The hosts. `one` and `two` run cordata."""

    network: Network
    one: Host
    two: Host
    servers: ServerHost
    #: cordata.toml of the first two.
    settings: str

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Rows of the common database."""
        return self.servers.postgres.execute(sql)

    def number(self, sql: str) -> int:
        """The one number that a query gives."""
        value = self.rows(sql)[0][0]
        assert isinstance(value, int)
        return value

    def term(self) -> tuple[int, str]:
        """The newest term and the host that has it."""
        [(term, holder)] = self.rows("SELECT term, holder FROM lease WHERE name = 'primary'")
        assert isinstance(term, int)
        return term, str(holder).partition("/")[0]

    def primary(self) -> Host:
        """The host whose primary leads."""
        return self.one if self.term()[1] == self.one.name else self.two

    def other(self, host: Host) -> Host:
        """The one that is not `host`."""
        return self.two if host is self.one else self.one

    def load(self, host: Host, first: int, **settings: object) -> Load:
        """Bookings to a host from outside, numbered from `first` on."""
        return booking_load(
            self.network, address=f"{host.address}:8080", first=first, again=True, **settings
        )

    def settle(self, timeout_s: float = 60.0) -> float:
        """Wait until every event was handled; the seconds that took."""
        open_ = (
            "SELECT (SELECT count(*) FROM message WHERE state <> 'dead')"
            " + (SELECT count(*) FROM outbox WHERE state <> 'published')"
        )
        return wait_for(
            lambda: self.number(open_) == 0, timeout_s=timeout_s, what="the last event handled"
        )

    def check(self, acknowledged: set[int]) -> None:
        """Every accepted request is there once, its effect once, and the terms only grew."""
        stored = "SELECT external_id, count(*) FROM reservation GROUP BY external_id"
        counts = {str(name): count for name, count in self.rows(stored)}
        assert {f"load-{number}" for number in acknowledged} <= counts.keys()
        assert set(counts.values()) <= {1}
        handled = (
            "SELECT count(*), count(DISTINCT (reservation_id, version)) FROM reservation_event"
            " WHERE event = 'received'"
        )
        assert self.rows(handled) == [(len(counts), len(counts))]
        assert self.number("SELECT count(*) FROM message WHERE state = 'dead'") == 0
        backwards = (
            "SELECT count(*) FROM (SELECT term, lag(term) OVER (ORDER BY id) AS before"
            " FROM term_said) AS said WHERE term < before"
        )
        assert self.number("SELECT count(*) FROM term_said") > 0
        assert self.number(backwards) == 0, "a write of an older term after a newer one"


def install(host: Host, settings: str) -> None:
    """The package, configured for the common servers; serving when this returns."""
    host.run("mkdir", "-p", "/etc/systemd/system/http.socket.d", "/opt/fleet/fleet_sql/postgres")
    files = {
        "/etc/systemd/system/http.socket.d/fleet.conf": (
            "[Socket]\nListenStream=\nListenStream=0.0.0.0:8080\nListenStream=/run/cordata/http.sock\n"
        ),
        "/opt/fleet/fleet.py": APP,
        "/opt/fleet/fleet_sql/__init__.py": "",
        "/opt/fleet/fleet_sql/postgres/term.sql": SQL,
    }
    for path, text in files.items():
        host.run("sh", "-euc", f"cat >{path}", stdin=text)
    host.run("apt-get", "-qq", "-y", "install", "/cordata.deb")
    host.systemctl("stop", "cordata.target", "worker@*", "primary.service")
    host.run("sh", "-euc", "cat >/etc/cordata/cordata.toml", stdin=settings)
    for name, secret in (("master-key", KEY), ("store-password", SECRET)):
        path = f"/etc/cordata/credentials/{name}"
        host.run("sh", "-euc", f"umask 077; cat >{path}", stdin=secret)


@contextmanager
def fleet(deb: Path, folder: Path, broker: str = "") -> Iterator[Fleet]:
    """Three booted hosts; all that the first two store is on the third.

    A later version of the package, with one more migration, is at hand as /newer.deb.
    """
    tree = find_tree()
    newer = later_version(deb, folder, {MIGRATION: "CREATE TABLE added_later (id bigint);\n"})
    binds = {deb: "/cordata.deb", newer: "/newer.deb"}
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        one, two = (Host(tree, network=network, binds=binds) for _ in range(2))
        servers = ServerHost(tree, network=network)
        for host in (one, two, servers):
            stack.callback(host.stop)
        start_all(one, two, servers)
        settings = f"""\
            [app]
            import = "fleet:app"
            path = ["/opt/fleet"]
            [store]
            url = "postgresql://{USER}@{servers.address}:5432/cordata"
            {broker}
            """
        made = Fleet(network, one, two, servers, textwrap.dedent(settings))
        made.rows(TABLES)
        for host in (one, two):
            install(host, made.settings)
        for host in (one, two):
            host.systemctl("start", "http.socket", "cordata.target")
        one.run("alpinehub", "demo")
        yield made


def install_again(made: Fleet, host: Host) -> None:
    """Boot a host that lost its power, and make it a member again."""
    host.start()
    install(host, made.settings)
    host.systemctl("start", "http.socket", "cordata.target")
