"""The lease of a worker, its groups, and what dead processes held: it becomes claimable again.

Each process has a row with a lease. The others of its host watch its pid (pidfd: no polling), so a
death is noticed at once; those of other hosts see that the lease is not renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Sequence

from cordata import clock
from cordata.broker import Broker, MessageId
from cordata.broker.group import Group, Registered, be_present, catch_up, register
from cordata.config.sections import EngineConfig
from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import logger, with_hint
from cordata.log_throttle import LogThrottle
from cordata.process import PROCESS_TOPIC, Lease, Process, all_processes
from cordata.services.loop import WakeEvent, background, wake_on
from cordata.store import Store

log = logger("cordata.recovery")

#: A death on this host is noticed at once; a lease that expires can wait so many polls.
_POLLS = 2
#: Nobody could renew while the store was away: then so long for all who live to do it. It is more
#: than they wait before they try the store again.
_GRACE_S = 15.0
_PRESENT_S = 60.0
_RETRY_S = 0.25


class RecoveryService:
    """Ready when the groups are registered. It ends last: when it leaves, no message is held."""

    name = "recovery"

    def __init__(
        self,
        store: Store,
        broker: Broker,
        lease: Lease,
        groups: Collection[Group],
        config: EngineConfig,
        *,
        held: Callable[[], Collection[MessageId]],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`held`: the messages that this process holds. `prepare`: before it registers."""
        self.heartbeat = Heartbeat(max_age_s=30.0 + _POLLS * config.poll_s)
        #: Set when the groups are registered.
        self.ready = asyncio.Event()
        #: Why they are not: the store is unavailable.
        self.trouble: StoreUnavailable | None = None
        self._store = store
        self._broker = broker
        self._lease = lease
        self._groups = groups
        self._look_s = min(_POLLS * config.poll_s, lease.lease_s / 3)
        self._held = held
        self._prepare = prepare
        self._wake = WakeEvent()
        #: Process id -> pidfd.
        self._watched: dict[str, int] = {}
        self._renewed_deadline = 0.0
        self._present_deadline = 0.0
        self._grace_deadline = 0.0
        self._cut_off = False

    async def run(self, stop: asyncio.Event) -> None:
        """Register, renew and reclaim until `stop`."""
        try:
            async with wake_on(self._wake, stop, self._store, PROCESS_TOPIC):
                registered = await self._register(stop)
                async with background(self._catch_up(registered)):
                    while not stop.is_set():
                        self.heartbeat.touch()
                        try:
                            await self.run_once()
                        except (StoreUnavailable, OSError) as error:  # no descriptor left, say
                            self._cut_off = True
                            log.debug("nothing can be reclaimed: %s", error)
                            await self._wake.wait(1.0)
                            continue
                        await self._wake.wait(self._look_s)
            await self._leave()
        finally:
            for process_id in list(self._watched):
                self._unwatch(process_id)

    async def _register(self, stop: asyncio.Event) -> Registered:
        throttle = LogThrottle()
        while not stop.is_set():
            self.heartbeat.touch()
            try:
                await self._renew()
                if self._prepare is not None:
                    await self._prepare()
                registered = await register(self._store, self._groups)
            except StoreUnavailable as error:
                self.trouble = error
                if throttle.is_due(str(error)):
                    log.warning("messages wait: %s", with_hint(error))
                await self._wake.wait(_RETRY_S)
                continue
            self.trouble = None
            self.ready.set()
            return registered
        return Registered((), "")

    async def _catch_up(self, registered: Registered) -> None:
        while True:
            try:
                await catch_up(self._store, registered)
            except StoreUnavailable:
                await asyncio.sleep(1.0)
            else:
                return

    async def run_once(self) -> int:
        """One pass: renew, then reclaim. Returns the number of messages that were reclaimed."""
        now = clock.monotonic()
        if now >= self._renewed_deadline:
            await self._renew()
        if self._groups and now >= self._present_deadline:
            await be_present(self._store, [group.name for group in self._groups])
            self._present_deadline = now + _PRESENT_S
        return await self._reclaim()

    async def _renew(self) -> None:
        await self._lease.renew()
        await self._broker.renew(self._held())
        self._renewed_deadline = clock.monotonic() + self._lease.lease_s / 3

    async def _reclaim(self) -> int:
        now = clock.monotonic()
        if self._cut_off:
            self._cut_off = False
            self._grace_deadline = now + _GRACE_S
        processes = {process.id: process for process in await all_processes(self._store)}
        me = self._lease.process.id
        others = [one for one in processes.values() if one.id != me]
        dead = {one.id for one in others if one.is_gone()}
        expired = set[str]()
        if now >= self._grace_deadline:
            now_us = self._store.now_us()
            expired = {one.id for one in others if one.expires_at < now_us}
            rows = await self._store.read(lambda tx: tx.fetch_all("queue.owners"))
            dead |= {row["owner"] for row in rows} - processes.keys() - {me}
        self._watch([one for one in others if one.id not in dead])
        count = 0
        for process_id in sorted(dead | expired):
            self.heartbeat.touch()
            count += await self._broker.reclaim(process_id, is_dead=process_id in dead)
        if dead or expired:
            self._store.notify(PROCESS_TOPIC)
        return count

    def _watch(self, living: Sequence[Process]) -> None:
        """Wake up when one of this host dies."""
        for process_id in self._watched.keys() - {one.id for one in living}:
            self._unwatch(process_id)
        for one in living:
            if one.id in self._watched or not one.is_here():
                continue
            try:
                pidfd = os.pidfd_open(one.pid)
            except ProcessLookupError:  # the next look finds it gone
                self._wake.set()
                continue
            self._watched[one.id] = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._died, one.id)

    def _died(self, process_id: str) -> None:
        self._unwatch(process_id)
        self._wake.set()

    def _unwatch(self, process_id: str) -> None:
        pidfd = self._watched.pop(process_id)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)

    async def _leave(self) -> None:
        # Else others see that the process is gone, or that its lease has expired.
        with contextlib.suppress(StoreUnavailable):
            await self._lease.leave()
