"""Carries the alerts of this process into the store, a unit for all that came together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial

import msgspec

from cordata.alert import Alerter, Buffer, Spool
from cordata.config.sections import AlertConfig
from cordata.core.alert import Group, Pace
from cordata.errors import CordataError
from cordata.log import logger
from cordata.services.alarm import Alarm, pause, waking
from cordata.store import Store, Tx

log = logger("cordata.alert")

#: Wakes whoever mails alerts.
ALERT_TOPIC = "alert"
#: What comes within this time of the first one shares its commit.
_GATHER_S = 1.0
_RETRY_S, _IDLE_S = 5.0, 3600.0
#: How often the file is looked at.
_SPOOL_S = 10.0


class AlertService:
    """Writes when something was counted. The store away: by mail directly, as soon as it is due."""

    name = "alerts"

    def __init__(
        self,
        store: Store,
        buffer: Buffer,
        alerter: Alerter,
        pace: Pace,
        *,
        spool: Spool | None = None,
    ) -> None:
        """`spool`: what processes of this host left there is carried, too."""
        self._store = store
        self._buffer = buffer
        self._alerter = alerter
        self._pace = pace
        self._spool = spool

    async def run(self, stop: asyncio.Event) -> None:
        """Carry until `stop`, then what is there once more."""
        alarm, loop = Alarm(), asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(alarm.ring)

        self._buffer.wake = wake
        idle_s = _IDLE_S if self._spool is None else _SPOOL_S
        try:
            async with waking(alarm, stop):
                while not stop.is_set():
                    if not self._buffer:
                        await alarm.sleep(idle_s)
                    await pause(stop, _GATHER_S if self._buffer else 0.0)
                    if not await self.run_once():
                        await pause(stop, _RETRY_S)
        finally:
            self._buffer.wake = None
        await self.run_once()

    async def run_once(self) -> bool:
        """One pass. Returns whether all that is known is in the store."""
        groups = self._buffer.take()
        try:
            if groups:
                await self._store.run(partial(add, groups=groups))
            if self._spool is not None and self._spool.waits:
                with self._spool.taken() as kept:
                    await self._store.run(partial(add, groups=kept))
        except (CordataError, OSError) as error:
            log.debug("alerts wait for the store: %s", error)
            self._buffer.put_back(self._tell_directly(groups))
            return False
        return True

    def _tell_directly(self, groups: list[Group]) -> list[Group]:
        """What is due by now: whether the store comes back nobody knows."""
        now_us = self._store.now_us()
        for group in groups:
            if self._alerter.mails and group.pending and self._pace.due_at(group) <= now_us:
                self._alerter.mail_soon(group.cause, group.sample, count=group.pending)
                group.pending = 0
        return groups


def pace_of(config: AlertConfig) -> Pace:
    """How mails are held back."""
    return Pace(
        count=config.count,
        wait_us=round(config.wait_s * 1e6),
        cooldown_us=round(config.cooldown_s * 1e6),
        max_per_hour=config.max_per_hour,
    )


async def add(tx: Tx, groups: Sequence[Group]) -> None:
    """The unit: count these into the store."""
    # In one order: on PostgreSQL two processes lock the same rows.
    rows = [msgspec.structs.asdict(g) for g in sorted(groups, key=lambda g: g.fingerprint)]
    for row in rows:
        del row["mailed_at"]
        row["urgent"] = int(row["urgent"])
    if rows:
        await tx.execute_many("alert.add", rows)
        tx.notify(ALERT_TOPIC)
