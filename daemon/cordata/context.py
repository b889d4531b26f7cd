"""Context: the application's access to the runtime, passed to each of its functions."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct, field

from cordata.core.commit_guard import CommitGuard
from cordata.errors import AlreadySeen, ClaimLost, Conflict, StoreUnavailable
from cordata.log import fields
from cordata.pool.client.lazy_client import LazyClient
from cordata.store import Chain, RuntimeStore, Store, Tx, Unit
from cordata.vault import Vault

if TYPE_CHECKING:
    from cordata.pool.client.client import Client

T = TypeVar("T")
C = TypeVar("C", bound="Context")


class Context(Struct, frozen=True, kw_only=True):
    """Store, vault, pool and settings for the application; one per process."""

    store: Store
    #: Seals and opens secrets with the master key.
    vault: Vault
    #: The application's sections of cordata.toml (`App.settings`), by name.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: The primary's term, in functions that it calls: a fencing token for systems that check one.
    #: It grows with each new primary. 0 in workers and commands.
    term: int = 0
    #: The migrations of the runtime and of the application.
    chains: tuple[Chain, ...] = ()
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("cordata.app"))
    #: Makes the client behind `pool`.
    lazy_client: LazyClient = field(default_factory=LazyClient)

    @property
    def pool(self) -> Client:
        """The pool: `await ctx.pool.execute("render", {...}, timeout=30)` runs an `@app.command`
        in another process, which may block, compute and crash without harm to this one.

        It connects at the first call. Raises: PoolUnavailable when this process has no pool.
        """
        return self.lazy_client.client

    def now_us(self) -> int:
        """The wall time that the fleet agrees on, in microseconds since the epoch."""
        return self.store.now_us()

    async def schema_current(self) -> bool:
        """Whether every migration that this code needs is applied. Raises: StoreUnavailable."""
        return await self.store.schema_current(self.chains)

    async def check_ready(self) -> None:
        """Check that this process can accept requests: for the health check of a load balancer.

        Raises: StoreUnavailable (StoreFull), a 503 over HTTP, when the store does not answer, a
        migration of this code is pending, or the store takes no writes. That is known from the
        writes of this process. One with event handlers renews its process lease, so it knows after
        a third of `[engine] process_lease_s` at the latest.
        """
        if not await self.schema_current():
            raise StoreUnavailable("the schema is older than this code")
        if (error := self.store.error()) is not None:
            raise error

    def alert(self, cause: str, text: str, *, ids: Sequence[str] = ()) -> None:
        """Alert the operator: log an error and, in a worker or the primary, soon send a mail with
        the number of occurrences, at most one per cause and cool-down (`[alert]`).

        Pass no personal data. Words that look like it, such as long numbers, are left out of the
        mail. `ids`: words of `text`, without spaces, that look like it but may be mailed, such as
        a company's customer number. Returns at once. A job that cannot do its work raises instead:
        a failure of its systemd unit is an alert.
        """
        about = {"alert_ids": " ".join(ids)} if ids else {}
        self.log.error("%s", text, extra=fields(alert=cause, **about))

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        """A separate transaction, for code that awaits other things between its writes.

        It takes the write lock at its first write and holds it for at most
        `transaction_timeout_s`. Prefer `run(unit)`, which shares its commit with others. Raises: as
        `Store.transaction`. Cancelling is safe: all of it commits, or nothing.
        """
        return self.store.transaction()

    async def run(self, unit: Unit[T], *, batch: bool = False) -> T:
        """Run a unit of work; returns after its commit.

        The unit awaits nothing but its tx and may run more than once. `batch=True`, for units that
        run often: it shares the transaction with others. Such a unit reads first, then writes, and
        a constraint or `rows=` checks each decision that it makes from its reads. Raises, and is
        safe to cancel, as `Store.run`.
        """
        return await self.store.run(unit, batch=batch)


class Event(Struct, frozen=True, kw_only=True):
    """An event, as passed to a handler; it may be delivered more than once."""

    #: 32 hex digits; the same at every redelivery.
    id: str
    #: For example `reservation.received`.
    type: str
    #: The `key` it was published with, see `App.on`; None: no key.
    key: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    #: 1 at the first delivery to the group.
    attempt: int = 1
    #: The time of the transaction that published it.
    created_at: datetime


class EventContext(Context, frozen=True, kw_only=True):
    """The Context of one message in one consumer group."""

    #: The consumer group whose handler is called.
    group: str
    #: `event.id`.
    event_id: str
    #: The number of the message's claim; 0: it has no row in the queue.
    _claim: int = 0
    #: As `Event.attempt`.
    _attempt: int = 1
    _guard: CommitGuard = field(default_factory=CommitGuard)
    #: Default of `run(batch=)`, see `App.on`.
    _batch: bool = False
    #: Whether the next message of the same key waits for this one.
    _in_order: bool = False
    #: Event id, claim and attempt of earlier messages of the key that were handled and committed
    #: nothing.
    _before: Sequence[tuple[str, int, int]] = ()

    @property
    def committed(self) -> bool:
        """Whether the message is marked as handled in the store, with its effect."""
        return self._guard.committed

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """As `Context.transaction`; the mark that the message is handled commits with it, so that
        the effect happens once.

        At most one per message, and within the handler: what a task that outlives the handler has
        not committed by the handler's end is rolled back. Raises: AlreadySeen when the message was
        handled before; ClaimLost when another process has claimed it since.
        """
        with self._guard.commit(self.group, "message"):
            async with self._explained(), self.store.transaction() as tx:
                yield tx
                self._guard.seal(self.group)
                await self._mark(tx)

    async def run(self, unit: Unit[T], *, batch: bool | None = None) -> T:
        """As `Context.run`; the mark that the message is handled commits with it, so that the
        effect happens once.

        At most one per message, begun before the handler ends. Cheaper than `transaction()`.
        `batch`: by default that of `App.on`. Raises: AlreadySeen when the message was handled
        before; ClaimLost when another process has claimed it since.
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
        """Write the mark, and delete the message from the queue, at the end of the effect's unit.

        A message of a key stays until its handler has ended. Earlier ones that are not settled yet
        are settled here: after a crash they would be delivered again, after this one. It only
        writes, so that the unit can be batched.
        """
        message = {"event_id": self.event_id, "group": self.group}
        if self._claim:
            name = "queue.confirm" if self._in_order else "queue.delete"
            await tx.write(name, rows=1, **message, claim=self._claim)
        for event_id, claim, attempts in self._before:
            earlier = {"event_id": event_id, "group": self.group}
            await tx.write("queue.delete", **earlier, claim=claim)
            await tx.write("queue.mark", **earlier, attempts=attempts, now_us=tx.now_us)
        await tx.insert("handled", **message, attempts=self._attempt, handled_at=tx.now_us)

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Around a commit: a Conflict about the message itself becomes AlreadySeen or ClaimLost."""
        try:
            yield
        except Conflict as error:
            raise (await self.store.read(self._find_reason) or error) from None

    async def _find_reason(self, tx: Tx) -> AlreadySeen | ClaimLost | None:
        """Why this process no longer has the claim of the message; None: it still has it."""
        message = {"event_id": self.event_id, "group": self.group}
        if await tx.fetch_one("queue.has_handled", **message):
            return AlreadySeen(f"event {self.event_id} was handled by {self.group} before")
        if self._claim and not await tx.fetch_one("queue.has_claim", **message, claim=self._claim):
            return ClaimLost(f"another process has claimed event {self.event_id} of {self.group}")
        return None


class BackfillContext(Context, frozen=True, kw_only=True):
    """The Context of one step of a backfill."""

    #: Rows that one step should process (`App.backfill(batch=)`).
    batch: int


_SHARED = Context.__struct_fields__


def derive_context(ctx: Context, kind: type[C], **more: Any) -> C:
    """A context of class `kind` for one message or step: the fields of `ctx`, and `more`."""
    shared: dict[str, Any] = {name: getattr(ctx, name) for name in _SHARED}
    return kind(**shared, **more)


def runtime_store(ctx: Context) -> RuntimeStore:
    """The store of a Context, typed with the methods that only the runtime uses."""
    return cast(RuntimeStore, ctx.store)
