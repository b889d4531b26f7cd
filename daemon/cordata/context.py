"""Context: what the runtime hands to the application's functions."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cordata.core.commit_guard import CommitGuard
from cordata.errors import AlreadySeen, ClaimLost, Conflict
from cordata.log import fields
from cordata.pool.client.lazy_client import LazyClient
from cordata.store import Chain, RuntimeStore, Store, Tx, Unit
from cordata.vault import Vault

if TYPE_CHECKING:
    from cordata.pool.client.client import Client

T = TypeVar("T")
C = TypeVar("C", bound="Context")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The runtime as the application sees it; one per process."""

    store: Store
    #: Seals and opens secrets with the master key.
    vault: Vault
    #: Sections of cordata.toml that the application declared, by name.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: The primary's term, in what it calls: a fencing token for systems that can check one. It only
    #: grows from primary to primary. 0 in workers and commands.
    term: int = 0
    #: The migrations that this code needs.
    chains: tuple[Chain, ...] = ()
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("cordata.app"))
    #: Makes the client behind `pool`.
    lazy_client: LazyClient = field(default_factory=LazyClient, repr=False)

    @property
    def pool(self) -> Client:
        """The pool: `await ctx.pool.execute("render", {...}, timeout=30)` runs an `@app.command`
        in a process that may block, compute and crash without harm to this one.

        It connects at the first call. Raises: PoolUnavailable when there is no pool here.
        """
        return self.lazy_client.client

    def now_us(self) -> int:
        """The wall time that the fleet agrees on, in microseconds since the epoch."""
        return self.store.now_us()

    async def schema_current(self) -> bool:
        """Whether every migration that this code needs is applied. Raises: StoreUnavailable."""
        return await self.store.schema_current(self.chains)

    def alert(self, cause: str, text: str, *, ids: Sequence[str] = ()) -> None:
        """Tell the operator: a line in the journal and, from a worker or the primary, soon a mail,
        which tells how often it happened; one per cause and cool-down at most (`[alert]`).

        Neither is a place for personal data; what looks like it is left out of the mail, long
        numbers too. `ids` are words of yours in them that may look so and are told, such as a
        customer number of a company: without spaces. Returns at once. A job that cannot do its work
        raises instead: the failure of its unit is an alert.
        """
        about = {"alert_ids": " ".join(ids)} if ids else {}
        self.log.error("%s", text, extra=fields(alert=cause, **about))

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A transaction of its own for code that awaits other things between its writes.

        It takes the write lock at its first write and holds it for `transaction_timeout_s` at
        most. Prefer `run(unit)`, which shares its commit with others. Raises: as
        `Store.transaction`. Cancelling is safe: it commits wholly or not at all.
        """
        return self.store.transaction()

    async def run(self, unit: Unit[T], *, batch: bool = False) -> T:
        """Run a unit of work; returns after its commit.

        The unit awaits nothing but its tx and may run more than once. `batch=True`, for one that
        runs often, shares the transaction with others: it reads first, then writes, and decides
        nothing that a constraint or `rows=` does not check. Raises, and is safe to cancel, as
        `Store.run`.
        """
        return await self.store.run(unit, batch=batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event as a handler sees it: it happened once, however often it is delivered."""

    #: 32 hex digits; the same at every redelivery.
    id: str
    #: For example `reservation.received`.
    type: str
    #: Events of one key belong together; None: no key.
    key: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    #: 1 at the first delivery to the group.
    attempt: int = 1
    #: When the transaction that wrote it ran.
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContext(Context):
    """The Context of one message in one consumer group."""

    #: The consumer group whose handler is called.
    group: str
    #: `event.id`.
    event_id: str
    #: The claim of the message, 0 without a row in the queue; and which attempt it is.
    _claim: int = 0
    _attempt: int = 1
    _guard: CommitGuard = field(default_factory=CommitGuard)
    #: Default of `run(batch=)`, see `App.on`.
    _batch: bool = False

    @property
    def committed(self) -> bool:
        """Whether the message is marked as handled in the store, with its effect."""
        return self._guard.committed

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """As `Context.transaction`, and the mark that the message is handled commits with it: the
        effect happens once. One per message, and within the handler: what a task that the handler
        leaves behind has not committed by its end is rolled back. Raises: AlreadySeen when it
        happened before; ClaimLost when another process has the message by now.
        """
        with self._guard.commit(self.group, "message"):
            async with self._explained(), self.store.transaction() as tx:
                yield tx
                self._guard.seal(self.group)
                await self._mark(tx)

    async def run(self, unit: Unit[T], *, batch: bool | None = None) -> T:
        """As `Context.run`, and the mark that the message is handled commits with it: the effect
        happens once.

        One per message, begun before the handler ends. Cheaper than `transaction()`. `batch`: by
        default as `App.on` says. Raises: AlreadySeen when it happened before; ClaimLost when
        another process has the message by now.
        """

        async def marked(tx: Tx) -> T:
            value = await unit(tx)
            await self._mark(tx)
            return value

        with self._guard.commit(self.group, "message"):
            self._guard.seal(self.group)
            async with self._explained():
                return await self.store.run(marked, batch=self._batch if batch is None else batch)

    async def _mark(self, tx: Tx) -> None:
        """Take the message from the queue and write the mark, at the end of the effect's unit: so
        the effect happens once. It only writes, so that the unit can be batched.
        """
        message = {"event_id": self.event_id, "group": self.group}
        if self._claim:
            await tx.write("queue.delete", rows=1, **message, claim=self._claim)
        await tx.insert("handled", **message, attempts=self._attempt, handled_at=tx.now_us)

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Around a commit: a Conflict because the message is another's says so."""
        try:
            yield
        except Conflict as error:
            raise (await self.store.read(self._look_why) or error) from None

    async def _look_why(self, tx: Tx) -> AlreadySeen | ClaimLost | None:
        """Why the message is not this process' any more; None: it is."""
        message = {"event_id": self.event_id, "group": self.group}
        if await tx.fetch_one("queue.has_handled", **message):
            return AlreadySeen(f"event {self.event_id} was handled by {self.group} before")
        if self._claim and not await tx.fetch_one("queue.has_claim", **message, claim=self._claim):
            return ClaimLost(f"another process has event {self.event_id} of {self.group} by now")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillContext(Context):
    """The Context of one step of a backfill."""

    #: Rows that one step should take, as its declaration says.
    batch: int


_SHARED = tuple(field.name for field in fields_of(Context))


def narrowed(ctx: Context, kind: type[C], **more: Any) -> C:
    """`ctx` for one message or one step: a `kind` with all of it, and `more`."""
    shared: dict[str, Any] = {name: getattr(ctx, name) for name in _SHARED}
    return kind(**shared, **more)


def runtime_store(ctx: Context) -> RuntimeStore:
    """The store of a Context with what only the runtime uses."""
    return cast(RuntimeStore, ctx.store)
