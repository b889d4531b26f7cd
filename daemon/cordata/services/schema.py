"""The schema: a worker waits until it is current; `cordata migrate` applies what is pending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from cordata import clock, events
from cordata.broker.group import Group, register
from cordata.context import Context, runtime_store
from cordata.errors import CordataError, StoreUnavailable
from cordata.log import LogThrottle, fields, logger, plural, with_hint
from cordata.services.fenced_context import LEASE_TOPIC, fenced
from cordata.services.loop import pause
from cordata.store import Chain, Lease, MigrationId, Store
from cordata.systemd import Notifier

log = logger("cordata.schema")

#: Between looks, each a read of one small table.
_POLL_S = 0.05
#: Between messages to the service manager: each EXTEND_TIMEOUT_USEC wakes it.
_TELL_S = 5.0


class SchemaGate:
    """Delays READY while migrations are pending."""

    name = "schema"

    def __init__(self, store: Store, chains: Sequence[Chain], notifier: Notifier) -> None:
        self.ready = asyncio.Event()
        #: The error of the last look, if the store was unavailable.
        self.error: StoreUnavailable | None = None
        self._store = store
        self._chains = chains
        self._notifier = notifier
        self._log_throttle = LogThrottle()

    def status(self) -> str:
        """For STATUS=: what is wrong with the store, while something is."""
        state = self._store.stats().state
        return "" if state == "ok" else f"store {state}"

    async def run(self, stop: asyncio.Event) -> None:
        """Wait for the schema, then for the stop."""
        logged_at = float("-inf")
        while not stop.is_set():
            waiting_for = await self.run_once()
            if not waiting_for:
                self.ready.set()
                break
            now = clock.monotonic()
            if now - logged_at >= _TELL_S:
                self._say(waiting_for)
                logged_at = now
                self._notifier.extend_timeout(waiting_for)
            await pause(stop, _POLL_S)
        await stop.wait()

    def _say(self, waiting_for: str) -> None:
        """Log the reason: repeatedly for an error; once for a migration, which the primary logs."""
        extra = fields(events.ROLE_WAITING)
        if self.error is None:
            if not self._log_throttle.has_logged and self._log_throttle.is_due(waiting_for):
                log.info("%s", waiting_for, extra=extra)
        elif self._log_throttle.is_due(waiting_for):
            log.warning("waiting for the store (%s)", with_hint(self.error), extra=extra)

    async def run_once(self) -> str:
        """One look. Returns the reason to wait, as text; "" when the schema is current."""
        try:
            pending = await self._store.pending(self._chains)
        except StoreUnavailable as error:
            self.error = error
            return f"waiting for the store ({error})"
        self.error = None
        if not pending:
            return ""
        return f"waiting for the schema ({plural(len(pending), 'migration')} pending)"


async def migrate_once(
    ctx: Context,
    lease: Lease,
    groups: Collection[Group],
    *,
    progress: Callable[[str], None] | None = None,
) -> list[MigrationId]:
    """Apply what is pending under the primary's lease; `progress(text)` before each.

    Then the consumer groups are registered, so that they get what is published before the first
    worker starts. Raises: CordataError when a primary holds the lease; as `Store.migrate`.
    """
    fence = await lease.try_acquire()
    if fence is None:
        raise CordataError(
            "a primary is running: only one may migrate",
            hint="it migrates when it starts: restart primary.service, or `cordata server`",
        )
    try:
        applied = await runtime_store(ctx).migrate(ctx.chains, fence=fence, progress=progress)
        store = fenced(ctx, fence).store
        await register(store, groups)
        return applied
    finally:
        await lease.release()
        ctx.store.notify(LEASE_TOPIC)
