"""A worker's membership: its process lease, its consumer groups, and the claims of the dead.

Each process has a row, its process lease (see cordata/process.py), renewed every third of
`[engine] process_lease_s`. The other processes of this host are watched by their pids (pidfd: no
polling), so a death is noticed at once; a process of another host counts as dead when its process
lease has expired.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Sequence

from cordata import clock
from cordata.broker import Broker, MessageId
from cordata.broker.group import Group, Lacking, catch_up, mark_present, register
from cordata.config.sections import EngineConfig
from cordata.errors import StoreUnavailable
from cordata.heartbeat import Heartbeat
from cordata.log import LogThrottle, logger, with_hint
from cordata.process import PROCESS_TOPIC, Process, ProcessLease, all_processes
from cordata.services.loop import WakeEvent, background, wake_on
from cordata.store import Store

log = logger("cordata.engine")

#: Polls between looks for expired leases. (A death on this host is noticed at once.)
_POLLS = 2
_PRESENT_S = 60.0
_RETRY_S = 0.25
#: After the store was away, when no process could renew its lease, expired leases are ignored for
#: this time; after a start, too, since it may have been away just before. It is longer than the
#: pause of processes before they try the store again.
_GRACE_S = 15.0


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
        self._renewed_deadline = 0.0
        self._present_deadline = 0.0
        #: Process id -> pidfd.
        self._watched: dict[str, int] = {}
        #: Whether the store was away: leases of living processes may have expired.
        self._was_away = False
        self._grace_deadline = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Register, renew and reclaim until `stop`."""
        self._was_away = True  # perhaps, just before this process came
        try:
            async with wake_on(self._wake, stop, self._store, PROCESS_TOPIC):
                lacking = await self._register(stop)
                async with background(self._catch_up(lacking)):
                    while not stop.is_set():
                        try:
                            await self.run_once()
                        except (StoreUnavailable, OSError) as error:  # no descriptor left, say
                            self._was_away = True
                            log.debug("nothing can be reclaimed: %s", error)
                            await self._wake.wait(1.0)
                            continue
                        grace_s = self._grace_deadline - clock.monotonic()
                        look_s = min(self._look_s, grace_s) if grace_s > 0 else self._look_s
                        await self._wake.wait(look_s)
            await self._leave()
        finally:
            for process_id in list(self._watched):
                self._unwatch(process_id)

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
        """One pass: renew, then reclaim. Returns the number of messages that were reclaimed.

        Raises: StoreUnavailable, OSError.
        """
        await self._stay_alive()
        now = clock.monotonic()
        if self._groups and now >= self._present_deadline:
            await mark_present(self._store, [group.name for group in self._groups])
            self._present_deadline = now + _PRESENT_S
        return await self._reclaim()

    async def _reclaim(self) -> int:
        """Reclaim the messages of dead processes. Returns how many."""
        now, own_id = clock.monotonic(), self._lease.process.id
        if self._was_away:
            self._was_away = False
            self._grace_deadline = now + _GRACE_S
        processes = {process.id: process for process in await all_processes(self._store)}
        others = [one for one in processes.values() if one.id != own_id]
        dead = {one.id for one in others if one.is_gone()}
        expired = set[str]()
        if now >= self._grace_deadline:
            now_us = self._store.now_us()
            expired = {one.id for one in others if one.expires_at < now_us}
            rows = await self._store.read(lambda tx: tx.fetch_all("queue.owners"))
            dead |= {row["owner"] for row in rows} - processes.keys() - {own_id}
        self._watch([one for one in others if one.id not in dead])
        count = 0
        for process_id in sorted(dead | expired):
            await self._stay_alive()  # each may take long when Redis is slow
            count += await self._broker.reclaim(process_id, is_dead=process_id in dead)
        if dead or expired:
            self._store.notify(PROCESS_TOPIC)
        return count

    def _watch(self, living: Sequence[Process]) -> None:
        for process_id in self._watched.keys() - {one.id for one in living}:
            self._unwatch(process_id)
        for one in living:
            if one.id in self._watched or not one.is_here():
                continue
            try:
                pidfd = os.pidfd_open(one.pid)
            except ProcessLookupError:  # the next pass finds it gone
                self._wake.set()
                continue
            self._watched[one.id] = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._pid_gone, one.id)

    def _pid_gone(self, process_id: str) -> None:
        self._unwatch(process_id)
        self._wake.set()

    def _unwatch(self, process_id: str) -> None:
        pidfd = self._watched.pop(process_id)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)

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
