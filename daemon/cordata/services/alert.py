"""Alerts and the store: each process carries its own there, the primary mails what is due."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from functools import partial

import msgspec

from cordata.alert import MAIL_PREFIX, Alerter, Buffer, Spool, recipients_of
from cordata.config.sections import AlertConfig, MailConfig
from cordata.context import Context
from cordata.core.alert import Group, Pace, subject_of, text_of
from cordata.errors import CordataError, StoreUnavailable
from cordata.log import logger
from cordata.services.leadership import Leadership
from cordata.services.loop import WakeEvent, pause, wake_on
from cordata.store import Row, Store, Tx, new_id

log = logger("cordata.alert")

#: Wakes the primary.
ALERT_TOPIC = "alert"
#: What comes within this time of the first one shares its commit.
_GATHER_S = 1.0
_RETRY_S, _IDLE_S = 5.0, 3600.0
#: How often the file is looked at.
_SPOOL_S = 10.0
_HOUR_US = 3_600_000_000
#: Kinds of one mail at most.
_LIMIT = 500
#: Shortest and longest sleep of the primary.
_MAIL_MIN_S, _MAIL_MAX_S = 1.0, 300.0


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
        wake, loop = WakeEvent(), asyncio.get_running_loop()

        def wake_soon() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(wake.set)

        self._buffer.wake = wake_soon
        idle_s = _IDLE_S if self._spool is None else _SPOOL_S
        try:
            async with wake_on(wake, stop):
                while not stop.is_set():
                    if not self._buffer:
                        await wake.wait(idle_s)
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


class AlertMailService:
    """Wakes when an alert was counted, and when one is due. The SMTP server may be away: what it
    writes waits there as any mail does.
    """

    name = "alertmail"

    def __init__(self, leadership: Leadership, config: AlertConfig, mail: MailConfig) -> None:
        self._leadership = leadership
        self._to = recipients_of(config) if mail.host else []
        self._pace = pace_of(config)

    async def run(self, stop: asyncio.Event) -> None:
        """Write until `stop`. Raises: LeaseLost."""
        ctx = await self._leadership.wait(stop)
        if ctx is None or not self._to:
            await stop.wait()
            return
        wake = WakeEvent()
        async with wake_on(wake, stop, ctx.store, ALERT_TOPIC):
            while not stop.is_set():
                try:
                    sleep_s = await self.run_once(ctx)
                except StoreUnavailable as error:
                    log.debug("alerts wait for the store: %s", error)
                    sleep_s = _MAIL_MAX_S
                await wake.wait(min(max(sleep_s, _MAIL_MIN_S), _MAIL_MAX_S))

    async def run_once(self, ctx: Context) -> float:
        """One pass. Returns the seconds until something may be due."""
        next_at = await ctx.store.read(self._look)
        if next_at is None or next_at > ctx.now_us():
            return _MAIL_MAX_S if next_at is None else (next_at - ctx.now_us()) / 1e6
        await ctx.store.run(self._write)
        return 0.0

    async def _look(self, tx: Tx) -> int | None:
        groups = await _pending(tx)
        if not groups:
            return None
        first_at = min(self._pace.due_at(group) for group in groups)
        return max(first_at, await self._free_at(tx))

    async def _free_at(self, tx: Tx) -> int:
        """From when on the limit of an hour allows a mail."""
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
        told = [
            {"fingerprint": g.fingerprint, "pending": g.pending, "now": now, "mail_id": mail_id}
            for g in due
        ]
        await tx.execute_many("alert.told", sorted(told, key=lambda row: str(row["fingerprint"])))
        await tx.execute("alert.forget_mails", since=now - _HOUR_US)
        await tx.execute("alert.note_mail", now=now)


async def _pending(tx: Tx) -> list[Group]:
    return [group_in(row) for row in await tx.fetch_all("alert.pending", limit=_LIMIT)]


def group_in(row: Row) -> Group:
    """A group as it is stored."""
    fields = {name: row[name] for name in row.keys()}
    return Group(**fields | {"urgent": bool(fields["urgent"])})


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
