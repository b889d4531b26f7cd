"""Deletes what has served its time, on the primary, in small batches that give way to requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from cordata.broker.settle import refresh_groups
from cordata.config.sections import EngineConfig, MailConfig
from cordata.context import Context
from cordata.errors import Conflict, StoreUnavailable
from cordata.log import logger
from cordata.registry import Handler
from cordata.services.loop import Pace, pause
from cordata.services.primary import Leadership
from cordata.store import Row, Tx

log = logger("cordata.retention")

_EVERY_S = 900.0
_BATCH = 200
#: Seen-marks outlive the outbox entries that could bring their message again.
_SEEN_MARGIN_S = 86_400.0
#: A kind of alert that did not come again for so long is forgotten.
_ALERT_S = 30 * 86_400.0


class RetentionService:
    """One pass now and then, which leaves this application's consumer groups alone."""

    name = "retention"

    def __init__(
        self,
        leadership: Leadership,
        handlers: Sequence[Handler],
        engine: EngineConfig,
        mail: MailConfig,
    ) -> None:
        self._leadership = leadership
        self._groups = [s.group for s in handlers]
        self._engine = engine
        self._mail = mail

    async def run(self, stop: asyncio.Event) -> None:
        """Delete until `stop`. Raises: LeaseLost."""
        ctx = await self._leadership.wait(stop)
        while ctx is not None and not stop.is_set():
            try:
                deleted = await self.run_once(ctx, stop)
            except StoreUnavailable as error:
                log.warning("nothing was deleted: %s", error)
            else:
                if any(deleted.values()):
                    log.info("deleted %s", ", ".join(f"{n} {t}" for t, n in deleted.items() if n))
            await pause(stop, _EVERY_S)

    async def run_once(self, ctx: Context, stop: asyncio.Event) -> Mapping[str, int]:
        """One pass. Returns rows deleted by kind."""
        await self._refresh(ctx)
        before = ctx.now_us() - int(self._engine.retention_s * 1e6)
        seen_before = before - int(_SEEN_MARGIN_S * 1e6)
        mail_before = ctx.now_us() - int(self._mail.retention_s * 1e6)
        alert_before = ctx.now_us() - int(_ALERT_S * 1e6)
        return {
            "outbox entries": await self._outbox(ctx, stop, before),
            "seen-marks": await self._marks(ctx, stop, seen_before),
            "idempotency keys": await self._batches(ctx, stop, "retention.idempotency", before),
            "mails": await self._batches(ctx, stop, "retention.mail", mail_before),
            "alerts": await self._batches(ctx, stop, "retention.alert", alert_before),
            "messages of unknown groups": await self._groups_gone(ctx, stop, before),
        }

    async def _refresh(self, ctx: Context) -> None:
        async def unit(tx: Tx) -> None:
            await refresh_groups(tx, self._groups)

        if self._groups:
            await ctx.store.run(unit)

    async def _batches(self, ctx: Context, stop: asyncio.Event, query: str, before: int) -> int:
        async def unit(tx: Tx) -> int:
            return await tx.execute(query, before=before, limit=_BATCH)

        count = 0
        pace = Pace(ctx.store)
        while not stop.is_set():
            await pace.next(full=False)
            deleted = await ctx.store.run(unit)
            count += deleted
            if deleted < _BATCH:
                break
        return count

    async def _marks(self, ctx: Context, stop: asyncio.Event, before: int) -> int:
        """Walks the old marks once, by age: those of events that are kept stay, and are many."""
        count, after, end = 0, -1, -1
        pace = Pace(ctx.store)
        while end != before - 1 and not stop.is_set():
            await pace.next(full=False)
            end = await _end_of_batch(ctx, after, before)
            count += await _delete_marks(ctx, after, end)
            after = end
        return count

    async def _groups_gone(self, ctx: Context, stop: asyncio.Event, before: int) -> int:
        async def unit(tx: Tx) -> int:
            return await tx.execute("retention.group", before=before)

        count = await self._batches(ctx, stop, "retention.group_messages", before)
        await ctx.store.run(unit)
        return count

    async def _outbox(self, ctx: Context, stop: asyncio.Event, before: int) -> int:
        """Walks the old end of the outbox: a page is read without the write lock, then deleted."""
        count, after = 0, 0
        pace = Pace(ctx.store)
        while not stop.is_set():
            await pace.next(full=False)
            page = await _page(ctx, after, before)
            ids = [row["id"] for row in page if row["old"]]
            if ids:
                count += await _delete(ctx, ids)
            if len(page) < _BATCH or page[-1]["created_at"] >= before:
                break
            after = page[-1]["id"]
        return count


async def _page(ctx: Context, after: int, before: int) -> list[Row]:
    async def unit(tx: Tx) -> list[Row]:
        return await tx.fetch_all("retention.outbox_page", after=after, before=before, limit=_BATCH)

    return await ctx.store.read(unit)


async def _end_of_batch(ctx: Context, after: int, before: int) -> int:
    """Up to when the next marks were written: a batch of them, or all that are old."""

    async def unit(tx: Tx) -> Row | None:
        return await tx.fetch_one("retention.seen_end", after=after, before=before, limit=_BATCH)

    row = await ctx.store.read(unit)
    return before - 1 if row is None else int(row["created_at"])


async def _delete_marks(ctx: Context, after: int, end: int) -> int:
    async def unit(tx: Tx) -> int:
        return await tx.execute("retention.seen", after=after, end=end)

    return await ctx.store.run(unit)


async def _delete(ctx: Context, ids: list[int]) -> int:
    async def unit(tx: Tx) -> int:
        return await tx.execute("retention.outbox", ids=json.dumps(ids))

    try:
        return await ctx.store.run(unit)
    except Conflict:  # one was published again at this very moment; another time
        return 0
