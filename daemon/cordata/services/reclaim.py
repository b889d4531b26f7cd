"""Reclaims the messages of dead processes.

The other processes of this host are watched by their pids (pidfd: no polling), so a death is
noticed at once; a process of another host counts as dead when its process lease has expired.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

from cordata import clock
from cordata.broker import Broker
from cordata.process import PROCESS_TOPIC, Process, all_processes
from cordata.store import Store

#: After the store was away, when no process could renew its lease, expired leases are ignored for
#: this time. It is longer than the pause of processes before they try the store again.
_GRACE_S = 15.0


class Reclaimer:
    """Finds dead processes and reclaims their claims, for the process `own_id`."""

    def __init__(
        self,
        store: Store,
        broker: Broker,
        own_id: str,
        *,
        wake: Callable[[], None],
        stay_alive: Callable[[], Awaitable[None]],
    ) -> None:
        """`wake`: called when a process of this host dies. `stay_alive`: awaited before each dead
        process is handled, which takes long when Redis is slow.
        """
        self._store = store
        self._broker = broker
        self._own_id = own_id
        self._wake = wake
        self._stay_alive = stay_alive
        #: Process id -> pidfd.
        self._watched: dict[str, int] = {}
        self._grace_deadline = 0.0
        self._was_away = False

    def store_was_away(self) -> None:
        """Note that the store was away: leases of living processes may have expired."""
        self._was_away = True

    async def run_once(self) -> int:
        """Reclaim. Returns the number of messages. Raises: StoreUnavailable, OSError."""
        now = clock.monotonic()
        if self._was_away:
            self._was_away = False
            self._grace_deadline = now + _GRACE_S
        processes = {process.id: process for process in await all_processes(self._store)}
        others = [one for one in processes.values() if one.id != self._own_id]
        dead = {one.id for one in others if one.is_gone()}
        expired = set[str]()
        if now >= self._grace_deadline:
            now_us = self._store.now_us()
            expired = {one.id for one in others if one.expires_at < now_us}
            rows = await self._store.read(lambda tx: tx.fetch_all("queue.owners"))
            dead |= {row["owner"] for row in rows} - processes.keys() - {self._own_id}
        self._watch([one for one in others if one.id not in dead])
        count = 0
        for process_id in sorted(dead | expired):
            await self._stay_alive()
            count += await self._broker.reclaim(process_id, is_dead=process_id in dead)
        if dead or expired:
            self._store.notify(PROCESS_TOPIC)
        return count

    def close(self) -> None:
        """Watch no process any more."""
        for process_id in list(self._watched):
            self._unwatch(process_id)

    def _watch(self, living: Sequence[Process]) -> None:
        for process_id in self._watched.keys() - {one.id for one in living}:
            self._unwatch(process_id)
        for one in living:
            if one.id in self._watched or not one.is_here():
                continue
            try:
                pidfd = os.pidfd_open(one.pid)
            except ProcessLookupError:  # the next pass finds it gone
                self._wake()
                continue
            self._watched[one.id] = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._pid_gone, one.id)

    def _pid_gone(self, process_id: str) -> None:
        self._unwatch(process_id)
        self._wake()

    def _unwatch(self, process_id: str) -> None:
        pidfd = self._watched.pop(process_id)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
