"""The primary's lease: its holder prepares the store, then leads; the others are standbys.

    standby ──lease free──> preparing ──schema, startup functions──> leading ──stop──> released
       ^                                                               │
       └──(a new process)──exit <──LeaseLost: a newer term exists──────┘

In a rolling upgrade the primary hands over to a process with newer migrations. Otherwise the host
that was upgraded first would wait for its schema until the last host is upgraded.

    newer, standing by          older, leading
    schema pending: request ──> sees the request, stops in order, releases
    takes the lease, migrates   starts again, stands by until the request is met or has expired

A process that lost the lease does not become a standby again: it stops its layers in order and
ends, and the service manager starts a new one, without any state of the old term.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence

from cordata import clock, events
from cordata.app import App
from cordata.broker.group import Group, register
from cordata.context import Context, runtime_store
from cordata.errors import LeaseLost, StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import LogThrottle, fields, logger, with_hint
from cordata.services.fenced_context import LEASE_TOPIC, fenced
from cordata.services.loop import WakeEvent, background, wake_on
from cordata.store import Chain, Fence, Lease, MigrationId, Store, Tx
from cordata.systemd import Notifier

log = logger("cordata.primary")

#: How often a leader reads its term (each of its writes checks it, too) and looks for a takeover
#: request, in case a wake-up is lost.
_CHECK_S = 5.0
#: How often a leader checks, without a query, that its lock is still trusted: a host that is cut
#: off must have stopped before another can get the lock.
_LOOK_S = 0.5
#: Timeout of these reads: a server that is cut off must not delay the checks above.
_READ_S = 1.0
#: How often a standby tries to take the lease: on SQLite one system call, on PostgreSQL one query.
_STANDBY_S = 0.25
#: How often a standby checks whether another process is to get the lease first.
_TAKEOVER_LOOK_S = 1.0
_TICK_S = 5.0
#: A request for a takeover expires after this time; a standby repeats it before that.
_TAKEOVER_S = 15.0


def holder_name() -> str:
    """The name of this process as a holder of the lease: `host/pid`."""
    return f"{socket.gethostname()}/{os.getpid()}"


class PrimaryService:
    """Takes the lease, prepares the store, leads; stops last, except for the stores."""

    name = "lease"

    def __init__(
        self,
        ctx: Context,
        app: App,
        lease: Lease,
        groups: Sequence[Group],
        chains: Sequence[Chain],
        notifier: Notifier,
        *,
        holder: str = "",
        hand_over: Callable[[], None] = lambda: None,
    ) -> None:
        """`holder`: the name of this process in takeover requests. `hand_over`: begins the stop of
        the role, at the end of which this service releases the lease.
        """
        self.heartbeat = Heartbeat()
        #: Set when it leads, or is a standby and the schema is current.
        self.ready = asyncio.Event()
        #: Set when it begins to lead.
        self.led = asyncio.Event()
        #: While it leads: the Context whose writes raise LeaseLost once a newer term exists.
        self.leading: Context | None = None
        self._ctx = ctx
        self._app = app
        self._lease = lease
        self._groups = groups
        self._chains = chains
        self._notifier = notifier
        self._holder = holder
        self._hand_over = hand_over
        self._wake = WakeEvent()
        self._standing_by = False
        self._log_throttle = LogThrottle()
        self._fence: Fence | None = None
        self._next_request = self._next_look = 0.0
        self._for_another = False

    def status(self) -> str:
        """For STATUS=: its part, and the state of the store, unless that is ok."""
        part = "standby" if self._standing_by else ""
        if self.leading is not None and self._fence is not None:
            part = f"primary, term {self._fence.term}"
        state = self._ctx.store.stats().state
        return "; ".join(filter(None, (part, "" if state == "ok" else f"store {state}")))

    async def run(self, stop: asyncio.Event) -> None:
        """Stand by, then lead until `stop`. Raises: LeaseLost."""
        async with wake_on(self._wake, stop, self._ctx.store, LEASE_TOPIC):
            while not stop.is_set():
                self.heartbeat.touch()
                self._fence = await self.run_once()
                if self._fence is not None:
                    break
                await self._wake.wait(_STANDBY_S)
            if self._fence is None:
                return
            try:
                await self._lead(self._fence, stop)
            finally:
                self.leading = None
                await self._lease.release()
                self._ctx.store.notify(LEASE_TOPIC)

    async def run_once(self) -> Fence | None:
        """One attempt to get the lease. Returns its fence; None: it is a standby."""
        try:
            fence = None
            if not await self._is_for_another():
                fence = await self._lease.try_acquire()
            if fence is None:
                await self._stand_by()
        except StoreUnavailable as error:
            self._notifier.extend_timeout(f"waiting for the store ({error})")
            if self._log_throttle.is_due(str(error)):
                log.warning("waiting for the store (%s)", with_hint(error))
            return None
        return fence

    async def _stand_by(self) -> None:
        if not self._standing_by:
            self._standing_by = True
            log.info("is a standby", extra=fields(events.PRIMARY_STANDBY))
        if self.ready.is_set():
            return
        pending = await self._ctx.store.pending(self._chains)
        if not pending:
            self.ready.set()
            return
        self._notifier.extend_timeout("standby; waiting for the schema")
        now = clock.monotonic()
        if now >= self._next_request:
            await request_takeover(self._ctx.store, pending[-1], holder=self._holder)
            self._next_request = now + _TAKEOVER_S / 3
            self._ctx.store.notify(LEASE_TOPIC)

    async def _is_for_another(self) -> bool:
        """Whether another process, with newer migrations than this one, is to get the lease."""
        now = clock.monotonic()
        if now >= self._next_look:
            self._next_look = now + _TAKEOVER_LOOK_S
            store = self._ctx.store
            self._for_another = await is_takeover_requested(
                store, holder=self._holder
            ) and await store.schema_current(self._chains)
        return self._for_another

    async def _lead(self, fence: Fence, stop: asyncio.Event) -> None:
        begun = clock.monotonic()
        ctx = fenced(self._ctx, fence)
        await self._prepare(ctx, fence)
        self.leading = ctx
        self.led.set()
        self._standing_by = False
        self.ready.set()
        log.info(
            "is the primary, term %d, prepared in %.0f ms",
            fence.term,
            (clock.monotonic() - begun) * 1000,
            extra=fields(events.PRIMARY_ELECTED, term=fence.term),
        )
        next_check = clock.monotonic()
        handing_over = woken = False
        while not stop.is_set():
            self.heartbeat.touch()
            now = clock.monotonic()
            if woken or now >= next_check or not self._lease.held:
                is_requested = await self.check(fence)
                next_check = now + _CHECK_S
                if is_requested and not handing_over:
                    log.warning("handing over to a primary with newer migrations")
                    handing_over = True
                    self._hand_over()
            woken = await self._wake.wait(_LOOK_S)

    async def _prepare(self, ctx: Context, fence: Fence) -> None:
        """Apply migrations, register groups, then run the startup functions in their order."""
        async with background(self._extend("migrating")):
            await runtime_store(self._ctx).migrate(self._chains, fence=fence)
            await register(ctx.store, self._groups)
        for startup in self._app.startups:
            async with background(self._extend(f"startup: {startup.__name__}")):
                await startup(ctx)

    async def _extend(self, text: str) -> None:
        """Extend the service manager's start timeout while a long step runs."""
        while True:
            self.heartbeat.touch()
            self._notifier.extend_timeout(text)
            await asyncio.sleep(_TICK_S)

    async def check(self, fence: Fence) -> bool:
        """Whether another process requests the lease. Raises: LeaseLost when a newer term exists,
        or the lock is lost.
        """
        try:
            async with asyncio.timeout(_READ_S):
                await self._lease.check()
                return await is_takeover_requested(self._ctx.store, holder=self._holder)
        except (StoreUnavailable, TimeoutError):
            return False  # writes fail now, too
        except LeaseLost as error:
            log.error("%s", error, extra=fields(events.PRIMARY_LOST, term=fence.term))
            raise


async def request_takeover(store: Store, migration: MigrationId, *, holder: str) -> None:
    """Request the lease from the primary, for a migration that its program does not have.

    Raises: StoreUnavailable.
    """

    async def unit(tx: Tx) -> None:
        if await tx.fetch_one("migration.table") is not None:
            await tx.write(
                "lease.request_takeover",
                wanted_by=holder,
                component=migration.component,
                number=migration.number,
                wanted_at=tx.now_us,
            )

    await store.run(unit)


async def is_takeover_requested(store: Store, *, holder: str) -> bool:
    """Whether a process other than `holder` requests the lease. Raises: StoreUnavailable."""

    async def unit(tx: Tx) -> bool:
        if await tx.fetch_one("migration.table") is None:
            return False
        since = tx.now_us - int(_TAKEOVER_S * 1_000_000)
        row = await tx.fetch_one("lease.takeover_request", holder=holder, since=since)
        return row is not None

    return await store.read(unit)
