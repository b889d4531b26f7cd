"""After a change from Redis back to the store as broker: returns unhandled events to the queue.

These are the events that waited for the relay or were in a stream, where they are no longer read.
New events of the groups stay in the store from then on.
"""

from __future__ import annotations

import asyncio
import json

from cordata.errors import StoreUnavailable
from cordata.log import logger
from cordata.services.loop import pause
from cordata.store import CLAIMABLE_TOPIC, Store, Tx

log = logger("cordata.redis")

#: Events of one transaction.
_PAGE = 500
#: Pause between passes: a transaction that began before may still publish for the relay.
_AGAIN_S = 30.0


class LeftoverService:
    """Runs on the primary."""

    name = "leftover"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, stop: asyncio.Event) -> None:
        """Run passes until `stop`."""
        while not stop.is_set():
            try:
                await self.run_once()
            except StoreUnavailable as error:
                log.info("cannot check for events that were left in Redis: %s", error)
            await pause(stop, _AGAIN_S)

    async def run_once(self) -> int:
        """One pass. Returns the number of messages that were added to the queue."""

        async def unit(tx: Tx) -> tuple[int, int]:
            waiting = await tx.fetch_all("redis.waiting", limit=_PAGE)
            sent = await tx.fetch_all("redis.page", type="", entry=0, limit=_PAGE)
            ids = sorted({row["event_id"] for row in (*waiting, *sent)})
            count = await tx.execute("redis.give", ids=json.dumps(ids), now_us=tx.now_us)
            waiting_ids = json.dumps([row["event_id"] for row in waiting])
            await tx.write("redis.drop_waiting", ids=waiting_ids)
            for row in sent:
                entries = json.dumps([row["entry"]])
                await tx.write("redis.forget", type=row["type"], entries=entries)
            await tx.write("redis.dissolve")
            await tx.write("redis.remove_relay")
            await tx.write("redis.remove_server")
            if count:
                tx.notify(CLAIMABLE_TOPIC)
            return count, max(len(waiting), len(sent))

        count, found = 0, _PAGE
        if not await self._store.read(_is_used):
            return 0
        while found == _PAGE:
            given, found = await self._store.run(unit)
            count += given
        if count:
            log.warning("moved %d messages from Redis back to the store", count)
        return count


async def _is_used(tx: Tx) -> bool:
    """Whether the store's tables have rows that Redis as the broker has left."""
    for query in ("redis.server", "redis.groups", "redis.last"):
        if await tx.fetch_all(query):
            return True
    return bool(await tx.fetch_all("redis.waiting", limit=1))
