"""Two hosts that run the hub, and a third with PostgreSQL, Redis and a mail server."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.host import package
from tests.host.documents import commands
from tests.host.load import Load, booking_load
from tests.host.machine import CHECKOUT, Host, find_tree, wait_for
from tests.host.mail import PostOffice
from tests.host.network import Network, start_all
from tests.host.package import KEEP, Packages
from tests.host.servers import SECRET, USER, ServerHost

#: The application of the tests: the hub, a primary that says its term ten times a second, two jobs,
#: and a second handler of each new reservation.
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

@app.job("say-mails")
async def say_mails(ctx, scope, period):
    async def unit(tx):
        for number in range(int(scope)):
            await tx.send_mail(to=["eva@example.com"], subject=f"{period}, {number}", text="Hi")
    await ctx.run(unit)

@app.on("reservation.received")
async def say_received(event, ctx):
    async with ctx.transaction() as tx:
        await tx.write("say_received", event_id=event.id)
"""
SQL = """
-- name: say_term
INSERT INTO term_said (term, at) VALUES (:term, :at);
-- name: say_job
INSERT INTO job_said (period) VALUES (:period);
-- name: say_received
INSERT INTO received_said (event_id) VALUES (:event_id);
"""
TABLES = """
CREATE TABLE term_said (id bigserial PRIMARY KEY, term bigint, at bigint);
CREATE TABLE job_said (period text);
CREATE TABLE received_said (event_id text)
"""
KEY = "5a" * 32
#: What a host had in hand that went dark is another's after this long.
CLAIM_S = 10.0
#: More than a primary sends before it is found dead.
MAILS = 500
#: Where the hub's migrations are, in this tree and in the package.
MIGRATIONS = "alpinehub/sql/migrations"
#: The one that the later version brings: numbers have no gaps.
ADDED = f"{len(list((CHECKOUT / 'daemon' / MIGRATIONS).glob('*.sql'))) + 1:04}_added"


@dataclass(slots=True)
class Fleet:
    """The hosts. `one` and `two` run cordata."""

    network: Network
    one: Host
    two: Host
    servers: ServerHost
    post_office: PostOffice
    #: URL of the broker; "": the default, the store.
    broker: str = ""

    @property
    def settings(self) -> str:
        """cordata.toml of the first two."""
        text = f"""\
            [app]
            import = "fleet:app"
            path = ["/opt/fleet"]
            [store]
            url = "postgresql://{USER}@{self.servers.address}:5432/cordata"
            [engine]
            process_lease_s = {CLAIM_S}
            [broker]
            """
        broker = f'url = "{self.broker}"\n' if self.broker else ""
        return self.post_office.settings + textwrap.dedent(text) + broker

    def rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Rows of the common database."""
        return self.servers.postgres.execute(sql, values)

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

    def use_redis(self) -> None:
        """Let Redis carry the events from now on, by what the documentation has its reader type."""
        self.broker = f"redis://{self.servers.address}:6379/0"
        typed = commands("host# ")
        assert typed
        for host in (self.one, self.two):
            for command in typed:
                there = command.replace("redis.example.com", self.servers.address)
                host.run("bash", "-euc", there.replace("another-secret", SECRET))
            assert host.sh("cat /etc/cordata/cordata.toml") == self.settings.rstrip()

    @contextmanager
    def handlers_held(self) -> Iterator[None]:
        """While inside, one handler does not get to its effect: its events pile up."""
        with self.servers.postgres.connect() as connection, connection.transaction():
            connection.execute("LOCK TABLE received_said IN EXCLUSIVE MODE")
            yield

    @contextmanager
    def mails_due(self) -> Iterator[None]:
        """While inside, the primary has more mails to send than it can.

        Afterwards each has arrived once. One may have come twice, under the same Message-ID: that
        which the mail server took when its sender could no longer say so.
        """
        period = f"term {self.term()[0]}"
        before = len(self.post_office.mails())
        job = ("cordata", "job", "say-mails", "--scope", MAILS, "--period", period)
        self.other(self.primary()).run(*job)
        wait_for(lambda: len(self.post_office.mails()) >= before + 20, what="the first mails")
        yield
        unsent = "SELECT count(*) FROM mail WHERE state <> 'sent'"
        try:
            sent = wait_for(lambda: not self.number(unsent), timeout_s=120.0, what="no mail left")
        except AssertionError as error:
            left = "SELECT state, attempts, last_error, count(*) FROM mail GROUP BY 1, 2, 3"
            error.add_note(f"state, attempts, error, mails: {self.rows(left)}")
            raise
        written = self.rows("SELECT message_id FROM mail WHERE subject LIKE %s", f"{period}, %")
        got = Counter(
            message["Message-ID"]
            for message in self.post_office.messages()
            if message["Subject"].startswith(f"{period}, ")
        )
        print(f"{len(got)} mails, twice: {got.total() - len(got)}; the last {sent:.1f} s later")
        assert got.keys() == {name for (name,) in written} and len(got) == MAILS
        assert got.total() <= MAILS + 1

    def unhandled(self) -> int:
        """Events that a group has still to handle, wherever they wait."""
        return self.number(
            "SELECT 2 * (SELECT count(*) FROM reservation)"
            " - (SELECT count(*) FROM reservation_history WHERE event = 'received')"
            " - (SELECT count(*) FROM received_said)"
        )

    def stranded(self) -> tuple[int, int]:
        """Events in Redis: those that no group has read, and those not acknowledged by who has."""
        unread = unacknowledged = 0
        with self.servers.redis.client() as client:
            for key in client.scan_iter("cordata:stream:*", _type="stream"):
                for group in client.xinfo_groups(key):
                    unread += group["lag"] or 0
                    unacknowledged += group["pending"]
        return unread, unacknowledged

    def settle(self, timeout_s: float = 60.0) -> float:
        """Wait until every event was handled; the seconds that took."""
        open_ = "SELECT count(*) FROM message WHERE state <> 'dead'"
        left = (0, 0, 0)

        def settled() -> bool:
            nonlocal left
            left = (self.number(open_), self.unhandled(), sum(self.stranded()))
            return left == (0, 0, 0)

        try:
            return wait_for(settled, timeout_s=timeout_s, what="the last event handled")
        except AssertionError as error:
            error.add_note(f"in the store's tables, without their effect, in Redis: {left}")
            raise

    def check(self, acknowledged: set[int]) -> None:
        """Every accepted request is there once, its effects once, and the terms only grew."""
        stored = "SELECT external_id, count(*) FROM reservation GROUP BY external_id"
        counts = {str(name): count for name, count in self.rows(stored)}
        assert {f"load-{number}" for number in acknowledged} <= counts.keys()
        assert set(counts.values()) <= {1}
        effects = (
            "SELECT (SELECT count(*) FROM reservation),"
            " h.rows, h.single, s.rows, s.single"
            " FROM (SELECT count(*) AS rows, count(DISTINCT (reservation_id, version)) AS single"
            "       FROM reservation_history WHERE event = 'received') AS h,"
            " (SELECT count(*) AS rows, count(DISTINCT event_id) AS single FROM received_said) AS s"
        )

        def is_single() -> bool:  # what a client gave up may still have come in meanwhile
            return len(set(self.rows(effects)[0])) == 1

        wait_for(is_single, timeout_s=15.0, what=f"each effect once: {self.rows(effects)}")
        assert self.number("SELECT count(*) FROM message WHERE state = 'dead'") == 0
        assert self.number("SELECT count(*) FROM term_said") > 0
        # In the order in which they were written, and in that in which they were committed.
        for order in ("id", "pg_xact_commit_timestamp(xmin)"):
            backwards = (
                f"SELECT count(*) FROM (SELECT term, max(term) OVER (ORDER BY {order}) AS newest"
                " FROM term_said) AS said WHERE term < newest"
            )
            assert self.number(backwards) == 0, "a write of an older term after a newer one"


def at_once(step: Callable[[Host], object], *hosts: Host) -> None:
    """Do the same on several hosts, and wait for all."""
    with ThreadPoolExecutor(len(hosts)) as pool:
        for doing in [pool.submit(step, host) for host in hosts]:
            doing.result()


def configure(host: Host, settings: str) -> None:
    """Write cordata.toml and the credentials; what runs learns of it when it is restarted."""
    folder = "/etc/cordata/credentials"
    host.run("sh", "-euc", f"umask 077; mkdir -p {folder}; chmod 755 /etc/cordata")
    host.run("sh", "-euc", "cat >/etc/cordata/cordata.toml", stdin=settings)
    host.run("chmod", "644", "/etc/cordata/cordata.toml")
    secrets = {"master-key": KEY, "store-password": SECRET}
    if "redis://" in settings:
        secrets["redis-password"] = SECRET
    for name, secret in secrets.items():
        host.run("sh", "-euc", f"umask 077; cat >{folder}/{name}", stdin=secret)


def install(host: Host, settings: str) -> None:
    """The packages, configured for the common servers; serving when this returns."""
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
    # As an image of a host would have it: the first start is one of the fleet.
    configure(host, settings)
    package.install(host, "", *KEEP)
    # The application is one of the fleet's own, not the package's.
    host.systemctl("enable", "--now", "cordata.target", "daily-report.timer")


@contextmanager
def fleet(debs: Packages, folder: Path) -> Iterator[Fleet]:
    """Three booted hosts; all that the first two store is on the third.

    A later version of the packages, with one more migration, is at hand in /newer.
    """
    tree = find_tree()
    added = f"usr/share/cordata/{MIGRATIONS}/{ADDED}.sql"
    newer = debs.later(folder, {added: "CREATE TABLE added_later (id {bigint});\n"})
    binds = {**debs.binds(), **newer.binds("/newer")}
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        one, two = (Host(tree, network=network, binds=binds) for _ in range(2))
        servers = ServerHost(tree, network=network)
        for host in (one, two, servers):
            stack.callback(host.stop)
        start_all(one, two, servers)
        made = Fleet(network, one, two, servers, PostOffice(servers, servers.address))
        made.post_office.start()
        made.rows(TABLES)
        at_once(lambda host: install(host, made.settings), one, two)
        one.run("alpinehub", "demo")
        yield made


def install_again(made: Fleet, host: Host) -> None:
    """Boot a host that lost its power, and make it a member again."""
    host.start()
    install(host, made.settings)
