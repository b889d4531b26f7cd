"""What every store promises; the embedded one and PostgreSQL are held to it by one test suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from cordata.store.fence import Fence
from cordata.store.migrate import Applied, Chain
from cordata.store.tx import Tx, Unit

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Numbers of this process (the log is shared by all processes)."""

    #: "ok", "full" or "unavailable".
    state: str
    #: Why it is not ok.
    reason: str
    #: Units waiting for a commit.
    waiting: int
    #: Since the start.
    commits: int
    #: Since the start; units / commits is how many share a sync.
    units: int
    #: Live part of the write-ahead log; 0 where that is the server's own affair.
    wal_bytes: int = 0
    #: The file of the log, which keeps its size.
    wal_file_bytes: int = 0


class Lease(Protocol):
    """At most one process of the fleet holds it; each time it is taken, its term is a new one.

        lease = store.lease(holder="primary on host")
        fence = await lease.try_acquire()      # None: another holds it; try again later
        await store.run(unit, fence=fence)     # LeaseLost once another took it over
        await lease.release()                  # a killed process releases by dying

    Works before the first migration, since the primary takes the lease to migrate.
    """

    @property
    def held(self) -> bool:
        """Whether this process holds the lease, as far as it can know without asking."""
        ...

    @property
    def fence(self) -> Fence | None:
        """The fence of the term that `try_acquire` began."""
        ...

    async def try_acquire(self) -> Fence | None:
        """Take the lease if it is free, with a new term. Returns at once; None: another holds it.

        Raises: StoreUnavailable when the term cannot be stored; then the lease stays free.
        """
        ...

    async def check(self) -> None:
        """See that the lease is still this process' own. Raises: LeaseLost, StoreUnavailable."""
        ...

    async def release(self) -> None:
        """Give the lease back, so that a standby takes over at its next try. Twice is fine."""
        ...


class Store(Protocol):
    """The store of a process as applications see it; all methods belong to the loop's thread."""

    @property
    def dialect(self) -> str:
        """The folder of its SQL files: "sqlite" or "postgres"."""
        ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def now_us(self) -> int:
        """The wall time that the fleet agrees on, in microseconds since the epoch.

        That of the host when embedded; of the server where hosts share one, whatever their own
        clocks say. What is compared with a time in the tables is compared with this.
        """
        ...

    async def run(
        self,
        unit: Unit[T],
        *,
        batch: bool = False,
    ) -> T:
        """Run a unit of work; return its result once it is on disk.

        It may run more than once. It sees committed state and its own writes, never half of another
        unit, on one snapshot: if a row that it changes has changed since, it runs again, reruns of
        one process taking turns. On PostgreSQL a unique violation, or `rows=` that does not hold,
        runs it again once; the second is a Conflict. Not covered is a decision about rows that it
        only reads or does not find: that takes a constraint, one statement, or `lock=True`.

        A unit that locks (on PostgreSQL also one with a query that says `-- newest`) sees the
        newest state with each statement, since a snapshot would be older than what the holder of
        the lock wrote. What it read before its last lock it reads again behind it, and runs again
        if that has changed; what it changes as it read it later, it locks. It locks first, or it is
        run twice. `cordata.testing.race` shows what two units make of each other.

        Cancelling is safe: it then ran wholly or not at all. Raises: what the unit raised; Conflict
        when a constraint refused a statement; StoreFull, StoreUnavailable; LeaseLost in what the
        primary runs, once another process is the primary; UnitMisuse when it awaited something else
        than its tx.

        `batch`: for a unit that runs often and decides nothing that a constraint or `rows=` does
        not check. It reads first (`fetch_one`, `fetch_all`), then writes (`write`, `insert`). On
        PostgreSQL its reads see one state, that before the batch; its writes are sent and committed
        together with those of other units that wait, in any order among the units. If one of its
        statements fails, or `rows=` does not hold, the others are not concerned: it runs again in a
        transaction of its own. So does, each time, a unit that does more than a batch can:
        `execute`, a read after a write, `lock=True`, a query that writes. In tests
        (`cordata.testing`) that is UnitMisuse. On SQLite a batched unit runs as any other.
        """
        ...

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit on a snapshot; never waits for writers.

        It may run more than once. Raises: what the unit raised; UnitMisuse when it writes;
        ReadTimeout, which is a StoreUnavailable, after `read_timeout_s`; StoreUnavailable.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A transaction of its own, for code that awaits other things between its statements.

        It takes its locks at its first write and holds them for `transaction_timeout_s` at most.
        From then on it sees one snapshot; if it collides with another transaction, all of it is
        done once more. One with a `lock=True` query, which comes first, is as such a unit.
        Raises: as `run`, TransactionTimeout; TransactionStale when what it was answered has
        changed.
        """
        ...

    def notify(self, topic: str) -> None:
        """Wake the waiters of a topic, in this process and in others."""
        ...

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """Wait to be woken: True, or False after the timeout. Costs nothing meanwhile.

        A wake-up between two waits of a task counts for the second one, so: look at the tables,
        then wait, again and again, in one task. Several tasks may wait for one topic.
        """
        ...

    async def schema_current(self, chains: Sequence[Chain]) -> bool:
        """Whether nothing is pending. Raises: SchemaError when the schema is too new for us."""
        return not await self.pending(chains)

    async def pending(self, chains: Sequence[Chain]) -> list[Applied]:
        """The migrations that `migrate` would apply. Raises: SchemaError."""
        ...

    async def checkpoint(self, *, force: bool = False) -> object | None:
        """Fold the write-ahead log back when it is over its limit; None: nothing was to do.

        `force`: in any case, and the log's file is cut, so that no deleted row is left in it.

        Raises: StoreUnavailable.
        """
        ...

    @property
    def waiting(self) -> int:
        """Units waiting for a commit."""
        ...

    def stats(self) -> StoreStats:
        """Numbers of this process."""
        ...

    async def close(self) -> None:
        """Take nothing more, finish what waits, then close. Twice is fine."""
        ...


class RuntimeStore(Store, Protocol):
    """The same store with what only the runtime uses: leases, migrations, fenced writes."""

    async def run(self, unit: Unit[T], *, batch: bool = False, fence: Fence | None = None) -> T:
        """As `Store.run`. Raises: also LeaseLost, when `fence` is stale."""
        ...

    def transaction(self, *, fence: Fence | None = None) -> AbstractAsyncContextManager[Tx]:
        """As `Store.transaction`. Raises: also LeaseLost, when `fence` is stale."""
        ...

    def lease(self, *, holder: str, name: str = "primary") -> Lease:
        """A lease; `holder` is for people."""
        ...

    async def migrate(
        self,
        chains: Sequence[Chain],
        *,
        fence: Fence | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> list[Applied]:
        """Apply what is pending, the runtime's own chain first; `progress(text)` before each.

        Each in a transaction of its own. Raises: SchemaError when the chains and the database do
        not fit together or a script fails; LeaseLost; StoreUnavailable.
        """
        ...
