"""Mails the alerts that are due, from the store, on the primary."""

from __future__ import annotations

import asyncio
import socket

from cordata.alert import MAIL_PREFIX, pace_of, recipients_of
from cordata.config.sections import AlertConfig
from cordata.core.alert import AlertGroup, subject_of, text_of
from cordata.errors import StoreUnavailable
from cordata.log import logger
from cordata.services.alert import ALERT_TOPIC
from cordata.services.loop import WakeEvent, wake_on
from cordata.store import Store, Tx, new_id

log = logger("cordata.alert")

_HOUR_US = 3_600_000_000
#: Alerts of one mail at most.
_LIMIT = 500
#: Shortest and longest sleep.
_MIN_S, _MAX_S = 1.0, 300.0


class AlertMailService:
    """Wakes when an alert was counted, and when one is due. It writes a row of `mail`, which is
    sent as any other.
    """

    name = "alert_mail"

    def __init__(self, store: Store, config: AlertConfig) -> None:
        self._store = store
        self._to = recipients_of(config)
        self._pace = pace_of(config)

    async def run(self, stop: asyncio.Event) -> None:
        """Write until `stop`. Raises: LeaseLost."""
        if not self._to:
            await stop.wait()
            return
        wake = WakeEvent()
        async with wake_on(wake, stop, self._store, ALERT_TOPIC):
            while not stop.is_set():
                try:
                    sleep_s = await self.run_once()
                except StoreUnavailable as error:
                    log.debug("alerts wait for the store: %s", error)
                    sleep_s = _MAX_S
                await wake.wait(min(max(sleep_s, _MIN_S), _MAX_S))

    async def run_once(self) -> float:
        """One pass. Returns the seconds until something may be due."""
        next_at = await self._store.read(self._look)
        if next_at is None:
            return _MAX_S
        if (wait_us := next_at - self._store.now_us()) > 0:
            return wait_us / 1e6
        await self._store.run(self._write)
        return 0.0

    async def _look(self, tx: Tx) -> int | None:
        groups = await _pending(tx)
        if not groups:
            return None
        first_at = min(self._pace.due_at(group) for group in groups)
        return max(first_at, await self._free_at(tx))

    async def _free_at(self, tx: Tx) -> int:
        """When the limit of mails per hour allows the next one, in microseconds; 0: now."""
        row = await tx.fetch_one("alert.mails", since=tx.now_us - _HOUR_US)
        full = row is not None and row["count"] >= self._pace.max_per_hour
        return row["first_at"] + _HOUR_US if row is not None and full else 0

    async def _write(self, tx: Tx) -> None:
        now = tx.now_us
        due = [group for group in await _pending(tx) if self._pace.due_at(group) <= now]
        if not due or await self._free_at(tx) > now:
            return
        due.sort(key=lambda group: (not group.urgent, group.since_at))
        mail_id = await tx.send_mail(
            to=self._to,
            subject=subject_of(due),
            text=text_of(due, self._pace),
            message_id=f"{MAIL_PREFIX}{new_id(now)}@{socket.gethostname()}>",
        )
        for group in sorted(due, key=lambda group: group.fingerprint):
            mailed = {"fingerprint": group.fingerprint, "pending": group.pending}
            await tx.write("alert.told", **mailed, now=now, mail_id=mail_id)
        await tx.execute("alert.forget_mails", since=now - _HOUR_US)
        await tx.execute("alert.note_mail", now=now)


async def _pending(tx: Tx) -> list[AlertGroup]:
    return [
        AlertGroup(**dict(row) | {"urgent": bool(row["urgent"])})
        for row in await tx.fetch_all("alert.pending", limit=_LIMIT)
    ]
