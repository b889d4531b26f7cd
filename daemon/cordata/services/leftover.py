"""When the store is the broker again: what was left in Redis, where it is not read, comes back.

The groups get their events in the store from then on, and what they have not handled of those that
waited for a relay or were in a stream.
"""

from __future__ import annotations

import asyncio
import json

from cordata.context import Context
from cordata.errors import StoreUnavailable
from cordata.log import logger
from cordata.services.leadership import Leadership
from cordata.services.loop import pause
from cordata.store import MESSAGE_TOPIC, Tx

log = logger("cordata.redis")

#: Events of one transaction.
_PAGE = 500
#: A transaction that began before may still publish for the relay: looked at again after so long.
_AGAIN_S = 30.0


class LeftoverService:
    """On the primary, as soon as it leads."""

    name = "leftover"

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership

    async def run(self, stop: asyncio.Event) -> None:
        """Look now and then until `stop`."""
        ctx = await self._leadership.wait(stop)
        while ctx is not None and not stop.is_set():
            try:
                await self.run_once(ctx)
            except StoreUnavailable as error:
                log.info("not known whether events were left in Redis: %s", error)
            await pause(stop, _AGAIN_S)

    async def run_once(self, ctx: Context) -> int:
        """Bring back what there is. Returns how many messages that gave."""

        async def unit(tx: Tx) -> tuple[int, int]:
            waiting = await tx.fetch_all("redis.waiting", limit=_PAGE)
            sent = await tx.fetch_all("redis.page", type="", entry=0, limit=_PAGE)
            ids = sorted({row["event_id"] for row in (*waiting, *sent)})
            count = await tx.execute("redis.give", ids=json.dumps(ids), now_us=tx.now_us)
            left = json.dumps([row["event_id"] for row in waiting])
            await tx.write("redis.drop_waiting", ids=left)
            for row in sent:
                entries = json.dumps([row["entry"]])
                await tx.write("redis.forget", type=row["type"], entries=entries)
            await tx.write("redis.dissolve")
            await tx.write("redis.remove_relay")
            await tx.write("redis.remove_server")
            if count:
                tx.notify(MESSAGE_TOPIC)
            return count, max(len(waiting), len(sent))

        count, found = 0, _PAGE
        if not await ctx.store.read(_is_used):
            return 0
        while found == _PAGE:
            given, found = await ctx.store.run(unit)
            count += given
        if count:
            log.warning("%d messages for groups that were in Redis are in the store now", count)
        return count


async def _is_used(tx: Tx) -> bool:
    """Whether the tables have anything of Redis."""
    for query in ("redis.server", "redis.groups", "redis.last"):
        if await tx.fetch_all(query):
            return True
    return bool(await tx.fetch_all("redis.waiting", limit=1))
