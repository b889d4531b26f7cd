"""Deletes rows after their retention time, on the primary, in small batches; requests go first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from cordata.broker.inspection import delete_done
from cordata.config.sections import EngineConfig, MailConfig
from cordata.errors import StoreUnavailable
from cordata.log import logger
from cordata.services.loop import Pace, pause
from cordata.store import Row, Store

log = logger("cordata.retention")

_EVERY_S = 900.0
_BATCH = 200
#: A kind of alert is deleted when it has not occurred for this long.
_ALERT_S = 30 * 86_400.0


class RetentionService:
    """Runs a pass every 15 minutes."""

    name = "retention"

    def __init__(
        self,
        store: Store,
        engine: EngineConfig,
        mail: MailConfig,
    ) -> None:
        self._store = store
        self._engine = engine
        self._mail = mail

    async def run(self, stop: asyncio.Event) -> None:
        """Delete until `stop`. Raises: LeaseLost."""
        while not stop.is_set():
            try:
                deleted = await self.run_once(stop)
            except StoreUnavailable as error:
                log.warning("nothing was deleted: %s", error)
            else:
                if any(deleted.values()):
                    log.info("deleted %s", ", ".join(f"{n} {t}" for t, n in deleted.items() if n))
            await pause(stop, _EVERY_S)

    async def run_once(self, stop: asyncio.Event) -> Mapping[str, int]:
        """One pass. Returns rows deleted by kind."""
        now_us = self._store.now_us()
        before = now_us - int(self._engine.retention_s * 1e6)
        mail_before = now_us - int(self._mail.retention_s * 1e6)
        alert_before = now_us - int(_ALERT_S * 1e6)
        return {
            "events": await self._events(stop, before),
            "idempotency keys": await self._batches(stop, "retention.idempotency", before),
            "mails": await self._batches(stop, "retention.mail", mail_before),
            "alerts": await self._batches(stop, "retention.alert", alert_before),
            "messages of removed groups": await self._batches(stop, "retention.orphans"),
        }

    async def _batches(self, stop: asyncio.Event, query: str, before: int | None = None) -> int:
        params = {} if before is None else {"before": before}

        count = 0
        pace = Pace(self._store)
        while not stop.is_set():
            await pace.next(full=False)
            deleted = await self._store.run(lambda tx: tx.execute(query, **params, limit=_BATCH))
            count += deleted
            if deleted < _BATCH:
                break
        return count

    async def _events(self, stop: asyncio.Event, before: int) -> int:
        """Walks the old end of the events: a page is read without the write lock, then deleted."""
        count, after = 0, 0
        pace = Pace(self._store)
        while not stop.is_set():
            await pace.next(full=False)
            page = await _page(self._store, after, before)
            ids = [row["id"] for row in page if row["old"]]
            if ids:
                count += await self._store.run(partial(delete_done, event_ids=ids))
            if len(page) < _BATCH or page[-1]["created_at"] >= before:
                break
            after = page[-1]["position"]
        return count


async def _page(store: Store, after: int, before: int) -> list[Row]:
    return await store.read(
        lambda tx: tx.fetch_all("retention.page", after=after, before=before, limit=_BATCH)
    )
