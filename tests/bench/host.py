"""What a host costs the servers it shares, and what it does: on PostgreSQL, and with Redis.

python -m tests.bench.host [--seconds 8] [--idle 30] [--broker store|redis]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.servers import POSTGRES, Server, command_line, family, hub, pss_kb, spent_s
from tests.bench.webhook import CONNECTIONS, wrk
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

#: PostgreSQL counts a transaction 10 s later at most; a burst's connections are given up.
_CALM_S = 15.0
_CLIENTS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
_COMMITS = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"
_ACCEPTED = "SELECT count(*) FROM reservation"
#: Of the events and their marks, each with its indexes.
_BYTES = (
    "SELECT (pg_total_relation_size('event') + pg_total_relation_size('handled'))"
    " / (SELECT count(*) FROM event)"
)


@dataclass(frozen=True, slots=True)
class Place:
    """The servers that all hosts share."""

    postgres: PostgresServer
    database: str
    redis: RedisServer | None

    @property
    def url(self) -> str:
        """Of the store."""
        return self.postgres.url(self.database)

    @property
    def broker(self) -> str:
        """URL of the broker."""
        return self.redis.url if self.redis else "store:"

    def number(self, sql: str) -> int:
        """The one number that a query gives."""
        return int(self.postgres.execute(sql, database=self.database)[0][0])

    def commands(self) -> int:
        """Commands that Redis has done; the asking is one, too."""
        return int(self.redis.info("stats")["total_commands_processed"]) if self.redis else 0

    def clients(self) -> int:
        """Connections to Redis but for the one that asks."""
        return int(self.redis.info("clients")["connected_clients"]) - 1 if self.redis else 0


@contextmanager
def place(kind: str) -> Iterator[Place]:
    """Fresh servers, synced as in production."""
    with ExitStack() as stack:
        postgres = stack.enter_context(PostgresServer(durable=True, settings=POSTGRES))
        redis = stack.enter_context(RedisServer(appendonly=True)) if kind == "redis" else None
        yield Place(postgres, postgres.create_database(), redis)


def idle(where: Place, hosts: list[Server], seconds: float) -> None:
    """Print what the hosts cost while nothing happens."""
    time.sleep(_CALM_S)
    before = (where.number(_COMMITS), where.commands(), sum(spent_s(host.pid) for host in hosts))
    time.sleep(seconds)
    used = sum(spent_s(host.pid) for host in hosts) - before[2]
    commits = where.number(_COMMITS) - before[0] - 1
    commands = max(where.commands() - before[1] - 1, 0)
    print(
        f"  {len(hosts)} idle: {where.number(_CLIENTS)} connections to PostgreSQL,"
        f" {commits / seconds:.1f} transactions/s; {where.clients()} to Redis,"
        f" {commands / seconds:.1f} commands/s; {used / seconds * 100:.1f} % of a core"
    )


def memory(host: Server) -> None:
    """Print what its processes share out among them."""
    for pid in family(host.pid):
        print(f"  PSS {pss_kb(pid) / 1024:5.1f} MB  {command_line(pid)[-60:]}")


def busy(where: Place, host: Server, seconds: int, run: str) -> None:
    """Print what it takes in when it is asked for all it can do."""
    accepted = where.number(_ACCEPTED)
    measured = wrk(host, seconds=seconds, run=run)
    print(
        f"  busy: {measured.per_s:.0f} requests/s (p99 {measured.p99_ms:.0f} ms, {CONNECTIONS}"
        f" connections, {where.number(_ACCEPTED) - accepted} in all);"
        f" {where.number(_CLIENTS)} connections to PostgreSQL, {where.clients()} to Redis"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--idle", type=float, default=30.0)
    parser.add_argument("--broker", choices=["store", "redis"], help="default: each")
    options = parser.parse_args()
    for kind in [options.broker] if options.broker else ["store", "redis"]:
        print(f"A host of 4 workers and a primary on PostgreSQL; broker: {kind}")
        with place(kind) as where, ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            first = stack.enter_context(hub(scratch / "1", where.url, broker=where.broker))
            idle(where, [first], options.idle)
            memory(first)
            for number in range(2):
                busy(where, first, options.seconds, f"{kind}{number}")
            print(f"  {where.number(_BYTES)} bytes of PostgreSQL per published event")
            memory(first)
            # One key for all hosts, as on real ones.
            (scratch / "2/hub").mkdir(parents=True)
            shutil.copytree(scratch / "1/hub/credentials", scratch / "2/hub/credentials")
            second = stack.enter_context(hub(scratch / "2", where.url, broker=where.broker))
            idle(where, [first, second], options.idle)


if __name__ == "__main__":
    main()
