"""The contract of every store; one test suite checks it on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self, TypeVar

from msgspec import Struct

from cordata.errors import StoreUnavailable
from cordata.store.fence import Fence
from cordata.store.migrate import Chain, MigrationId
from cordata.store.tx import Tx, Unit

T = TypeVar("T")


class StoreStats(Struct, frozen=True, kw_only=True):
    """Numbers of this process; that of the write-ahead log is of the whole store."""

    #: "ok", "full" or "unavailable".
    state: str
    #: Why it is not ok; "": it is.
    reason: str
    #: Commits since the start.
    commits: int
    #: Units since the start; units / commits: how many share a commit.
    units: int
    #: Live part of the write-ahead log; 0 on PostgreSQL, where the server manages it.
    wal_bytes: int = 0


#: Limit of one wait for a topic, in case a wake-up is lost.
_WAIT_S = 3600.0


class Lease(Protocol):
    """A lock that at most one process of the fleet holds; each new holder gets a new term.

        lease = store.lease(holder="primary on host")
        fence = await lease.try_acquire()      # None: another process holds it; try again later
        await store.run(unit, fence=fence)     # LeaseLost once another process has taken it
        await lease.release()                  # not needed if the process dies

    Works before the first migration, since the primary takes the lease to migrate.
    """

    @property
    def held(self) -> bool:
        """Whether this process holds the lease, as far as it knows without asking the store."""
        ...

    async def try_acquire(self) -> Fence | None:
        """Take the lease if it is free, with a new term. Does not wait. None: it is not free.
        While it is held it returns the same fence again.

        Raises: StoreUnavailable when the term cannot be stored; then the lease stays free.
        """
        ...

    async def check(self) -> None:
        """Check that this process still holds the lease. Raises: LeaseLost, StoreUnavailable."""
        ...

    async def release(self) -> None:
        """Give the lease back, so that a standby gets it at its next try. Idempotent."""
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
        """The common wall time of the fleet, in microseconds since the epoch.

        The host's time on SQLite, the server's time on PostgreSQL. Compare times in the tables only
        with this one.
        """
        ...

    async def run(
        self,
        unit: Unit[T],
        *,
        batch: bool = False,
    ) -> T:
        """Run a unit of work; return its result once it is on disk.

        The unit may run more than once. It sees one snapshot: committed state and its own writes,
        never half of another unit. If a row that it changes has changed since the snapshot, it runs
        again; such reruns of one process take turns. On PostgreSQL it also runs again after a
        unique violation or a wrong number of rows (`rows=`), but only once: the second is a
        Conflict. Not covered is a decision about rows that it only reads or does not find: use a
        constraint, one statement, or `lock=True`.

        A unit that locks (on PostgreSQL also one with a query marked `-- newest`) sees the newest
        state with each statement, since a snapshot would be older than the writes of the previous
        holder of the lock. After a lock, the store reads again what the unit has read before; if
        that has changed, the unit runs again. Lock rows that are read later and changed. Lock
        first: otherwise the unit may run twice. `cordata.testing.race` interleaves two units.

        Cancelling is safe: the unit then ran completely or not at all. Raises: what the unit
        raised; Conflict when a constraint refused a statement; StoreFull, StoreUnavailable;
        LeaseLost in code of the primary, once another process is the primary; UnitMisuse when the
        unit awaited something other than its tx.

        `batch`: for a unit that runs often and whose every decision is checked by a constraint or
        `rows=`. It reads first (`fetch_one`, `fetch_all`), then writes (`write`, `insert`). On
        PostgreSQL its reads see one state, that before the batch; its writes are sent and committed
        together with those of other waiting units, in any order among the units. If one of its
        statements fails, or `rows=` does not match, the other units are not affected: it runs again
        in a separate transaction. A unit that does more than a batch can (`execute`, a read after a
        write, `lock=True`, a query that writes) runs that way each time; in tests
        (`cordata.testing`) it is UnitMisuse. On SQLite a batched unit runs like any other.
        """
        ...

    async def read(self, unit: Unit[T]) -> T:
        """Run a unit on a snapshot; never waits for writers.

        It may run more than once. Raises: what the unit raised; UnitMisuse when it writes;
        ReadTimeout, which is a StoreUnavailable, after `read_timeout_s`; StoreUnavailable.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A transaction for code that awaits other things between its statements.

        It takes its locks at its first write and holds them for `transaction_timeout_s` at most.
        From then on it sees one snapshot. If it collides with another transaction, the store
        repeats all its statements. With `lock=True`, which must come first, it sees the newest
        state like a unit that locks. Raises: as `run`; TransactionTimeout; TransactionStale when
        the repeated statements have other results.
        """
        ...

    def notify(self, topic: str) -> None:
        """Wake the waiters of a topic, in this process and in others."""
        ...

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """Wait until the topic is notified: True; False after the timeout. Does not poll.

        A wake-up between two waits of a task ends the second one at once, so one task may read the
        tables, then wait, in a loop. Several tasks may wait for one topic.
        """
        ...

    async def schema_current(self, chains: Sequence[Chain]) -> bool:
        """Whether no migration is pending. Raises: SchemaError when the schema is too new."""
        return not await self.pending(chains)

    async def pending(self, chains: Sequence[Chain]) -> list[MigrationId]:
        """The migrations that `migrate` would apply. Raises: SchemaError."""
        ...

    async def checkpoint(self) -> bool:
        """Empty the write-ahead log, so that no deleted row remains in its file. The store limits
        its size without this. Returns False when a reader was in the way.

        Raises: StoreUnavailable.
        """
        ...

    @property
    def waiting(self) -> int:
        """Units waiting for a commit."""
        ...

    def error(self) -> StoreUnavailable | None:
        """The error of every write now; None: the store takes writes, as far as is known."""
        ...

    def stats(self) -> StoreStats:
        """Numbers of this process."""
        ...

    async def close(self) -> None:
        """Accept no more units, finish those that wait, then close. Idempotent."""
        ...


async def watch(store: Store, topic: str, wake: Callable[[], object]) -> None:
    """Call `wake` whenever the topic is notified, until cancelled."""
    while True:
        if await store.wait(topic, _WAIT_S):
            wake()
