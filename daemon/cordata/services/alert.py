"""Writes the alerts of a process to the store; the primary mails them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

import msgspec

from cordata.alert import Alerter, Buffer, Spool
from cordata.core.alert import AlertGroup
from cordata.errors import CordataError
from cordata.log import logger
from cordata.services.loop import WakeEvent, pause, wake_on
from cordata.store import Store, Tx

log = logger("cordata.alert")

#: Wakes the primary.
ALERT_TOPIC = "alert"
#: Alerts within this time of the first one share its commit.
_GATHER_S = 1.0
_RETRY_S, _IDLE_S = 5.0, 3600.0
#: Between looks at the file of the host.
_SPOOL_S = 10.0


class AlertService:
    """Writes alerts when there are some. While the store is away it mails those that are due."""

    name = "alerts"

    def __init__(
        self,
        store: Store,
        buffer: Buffer,
        alerter: Alerter,
        *,
        spool: Spool | None = None,
    ) -> None:
        """`spool`: the file with alerts of other processes of this host, to be stored, too."""
        self._store = store
        self._buffer = buffer
        self._alerter = alerter
        self._spool = spool

    async def run(self, stop: asyncio.Event) -> None:
        """Store alerts until `stop`, then once more."""
        wake, loop = WakeEvent(), asyncio.get_running_loop()

        def wake_soon() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(wake.set)

        self._buffer.wake = wake_soon
        idle_s = _IDLE_S if self._spool is None else _SPOOL_S
        try:
            async with wake_on(wake, stop):
                while not stop.is_set():
                    if not await self.run_once():
                        await pause(stop, _RETRY_S)
                    if not self._buffer:
                        await wake.wait(idle_s)
                    await pause(stop, _GATHER_S if self._buffer else 0.0)
        finally:
            self._buffer.wake = None
        await self.run_once()

    async def run_once(self) -> bool:
        """One pass. Returns whether all alerts are in the store."""
        groups = self._buffer.take()
        try:
            if groups:
                await self._store.run(partial(add, groups=groups))
                groups = []
            if self._spool is not None and self._spool.waits:
                with self._spool.taken() as kept:
                    await self._store.run(partial(add, groups=kept))
        except (CordataError, OSError) as error:
            log.debug("alerts wait for the store: %s", error)
            self._buffer.put_back(self._tell_directly(groups))
            return False
        except asyncio.CancelledError:
            # The process leaves what is in the buffer to the primary. On SQLite the commit may
            # still happen: they are counted twice then, which is better than not at all.
            self._buffer.put_back(groups)
            raise
        return True

    def _tell_directly(self, groups: list[AlertGroup]) -> list[AlertGroup]:
        """Mail what is due by now: the store may be away for long."""
        now_us = self._store.now_us()
        for group in groups:
            if self._alerter.mails and group.pending and self._alerter.pace.due_at(group) <= now_us:
                self._alerter.mail_soon(group)
                group.pending = 0
        return groups


async def add(tx: Tx, groups: Sequence[AlertGroup]) -> None:
    """The unit: count these into the store."""
    # Sorted, so that two processes that lock the same rows on PostgreSQL cannot deadlock.
    for group in sorted(groups, key=lambda group: group.fingerprint):
        row = msgspec.structs.asdict(group)
        del row["mailed_at"]
        row["urgent"] = int(row["urgent"])
        await tx.write("alert.add", **row)
    if groups:
        tx.notify(ALERT_TOPIC)
