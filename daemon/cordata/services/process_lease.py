"""A worker's membership: its process lease, its consumer groups, and the claims of the dead.

Each process has a row, its process lease (see cordata/process.py), renewed every third of
`[engine] process_lease_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection

from cordata import clock
from cordata.broker import Broker, MessageId
from cordata.broker.group import Group, Lacking, catch_up, mark_present, register
from cordata.config.sections import EngineConfig
from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import LogThrottle, logger, with_hint
from cordata.process import PROCESS_TOPIC, ProcessLease
from cordata.services.loop import WakeEvent, background, wake_on
from cordata.services.reclaim import Reclaimer
from cordata.store import Store

log = logger("cordata.engine")

#: Polls between looks for expired leases. (A death on this host is noticed at once.)
_POLLS = 2
_PRESENT_S = 60.0
_RETRY_S = 0.25


class ProcessLeaseService:
    """Renews the lease and reclaims. It stops when this process has no claims any more."""

    name = "process_lease"

    def __init__(
        self,
        store: Store,
        broker: Broker,
        lease: ProcessLease,
        groups: Collection[Group],
        config: EngineConfig,
        *,
        held: Callable[[], Collection[MessageId]],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`held`: returns the messages that this process has claimed. `prepare`: awaited before the
        groups are registered.
        """
        self.heartbeat = Heartbeat(max_age_s=30.0 + _POLLS * config.poll_s)
        #: Set when the groups are registered.
        self.ready = asyncio.Event()
        #: The error that prevents that, while the store is unavailable.
        self.error: StoreUnavailable | None = None
        self._store = store
        self._broker = broker
        self._lease = lease
        self._groups = groups
        self._look_s = min(_POLLS * config.poll_s, lease.lease_s / 3)
        self._held = held
        self._prepare = prepare
        self._wake = WakeEvent()
        self._reclaimer = Reclaimer(
            store,
            broker,
            lease.process.id,
            wake=self._wake.set,
            stay_alive=self._stay_alive,
        )
        self._renewed_deadline = 0.0
        self._present_deadline = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Register, renew and reclaim until `stop`."""
        try:
            async with wake_on(self._wake, stop, self._store, PROCESS_TOPIC):
                lacking = await self._register(stop)
                async with background(self._catch_up(lacking)):
                    while not stop.is_set():
                        try:
                            await self.run_once()
                        except (StoreUnavailable, OSError) as error:  # no descriptor left, say
                            self._reclaimer.store_was_away()
                            log.debug("nothing can be reclaimed: %s", error)
                            await self._wake.wait(1.0)
                            continue
                        await self._wake.wait(self._look_s)
            await self._leave()
        finally:
            self._reclaimer.close()

    async def _register(self, stop: asyncio.Event) -> Lacking:
        throttle = LogThrottle()
        while not stop.is_set():
            self.heartbeat.touch()
            try:
                await self._renew()
                if self._prepare is not None:
                    await self._prepare()
                lacking = await register(self._store, self._groups)
            except StoreUnavailable as error:
                self.error = error
                if throttle.is_due(str(error)):
                    log.warning("messages wait: %s", with_hint(error))
                await self._wake.wait(_RETRY_S)
                continue
            self.error = None
            self.ready.set()
            return lacking
        return {}

    async def _catch_up(self, lacking: Lacking) -> None:
        while True:
            try:
                await catch_up(self._store, lacking)
            except StoreUnavailable:
                await asyncio.sleep(1.0)
            else:
                return

    async def run_once(self) -> int:
        """One pass: renew, then reclaim. Returns the number of messages that were reclaimed."""
        await self._stay_alive()
        now = clock.monotonic()
        if self._groups and now >= self._present_deadline:
            await mark_present(self._store, [group.name for group in self._groups])
            self._present_deadline = now + _PRESENT_S
        return await self._reclaimer.run_once()

    async def _stay_alive(self) -> None:
        """Show the watchdog and the other processes that this one lives."""
        self.heartbeat.touch()
        if clock.monotonic() >= self._renewed_deadline:
            await self._renew()

    async def _renew(self) -> None:
        await self._lease.renew()
        await self._broker.give_back_orphans(self._held())
        self._renewed_deadline = clock.monotonic() + self._lease.lease_s / 3

    async def _leave(self) -> None:
        # If this fails, others notice that the process is gone, or that its process lease expired.
        with contextlib.suppress(StoreUnavailable):
            await self._lease.leave()
