"""From the outbox to the store's own messages: one unit for each batch."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Mapping, Sequence

from cordata.broker import claim, direct, key
from cordata.broker.direct import Taker
from cordata.broker.message import Message, Relayed
from cordata.broker.settle import STREAM_TOPIC
from cordata.broker.stray import Strays
from cordata.core.claim import claimed_until
from cordata.log import fields, logger
from cordata.store import Store, Tx

log = logger("cordata.relay")


#: A process that makes up types warns of so many of them.
_MOST_TOLD = 1000


class Unhandled:
    """Warns of event types that no group handles, of each once."""

    def __init__(self, known: Mapping[str, str]) -> None:
        """`known`: group -> type, of the groups registered by this process."""
        self._known = known
        self._told: set[str] = set()

    def look(self, types: Mapping[str, int]) -> None:
        """`types` that are published -> how many groups handle each."""
        for type_, count in types.items():
            if count or type_ in self._told or len(self._told) >= _MOST_TOLD:
                continue
            self._told.add(type_)
            near = difflib.get_close_matches(type_, self._known.values(), n=1, cutoff=0.6)
            log.warning(
                "no group handles events of type %r: they are dropped%s",
                type_,
                f" (did you mean {near[0]!r}?)" if near else "",
                extra=fields(event_type=type_),
            )


class Publisher:
    """Of one process."""

    def __init__(
        self, store: Store, types: Mapping[str, str], strays: Strays, *, claim_timeout_us: int
    ) -> None:
        """`types`: group -> type, of the groups registered by this process."""
        self._store = store
        self._types = types
        self._strays = strays
        self._claim_timeout_us = claim_timeout_us
        self._busy = asyncio.Lock()
        #: Whose hands are filled on the way; None: nobody's.
        self.taker: Taker | None = None

    async def publish(self, limit: int) -> tuple[Relayed, Mapping[str, int]]:
        """Publish what is due; with it, how many groups want the events of each type."""
        async with self._busy:
            taker = self.taker
            if taker is None:
                relayed, types, _ = await self._run(limit, {}, "")
                return relayed, types
            messages: Sequence[Message] = ()
            try:
                relayed, types, messages = await self._run(limit, taker.expect(), taker.owner)
            finally:
                taker.receive(messages)
            return relayed, types

    async def _run(
        self, limit: int, room: Mapping[str, int], owner: str
    ) -> tuple[Relayed, Mapping[str, int], Sequence[Message]]:
        """Publish; with it the messages that are `owner`'s, as far as there is room."""

        async def unit(tx: Tx) -> tuple[Relayed, Mapping[str, int], Sequence[Message]]:
            found = await claim.due(tx, limit=limit, whole=bool(room))
            messages = await self._fan_out(tx, found, room, owner) if found.ids else ()
            count = len(found.ids)
            # After a full batch the next pass looks anyway.
            next_at = tx.now_us if count >= limit else await outbox_due_at(tx)
            relayed = Relayed(published=count, next_at=next_at, backfill=found.backfill)
            await tx.write("commit.unsynced")  # what a crash takes back is published again
            return relayed, found.types, messages

        return await self._strays.claiming(self._store, unit)

    async def quiet(self) -> None:
        """Nobody's hands are filled any more; returns when what was on its way is there."""
        self.taker = None
        async with self._busy:
            return

    async def _fan_out(
        self, tx: Tx, found: claim.Found, room: Mapping[str, int], owner: str
    ) -> Sequence[Message]:
        """Publish entries; the messages that are `owner`'s now."""
        ids = json.dumps(found.ids)
        way = direct.choose(found, self._types, room)
        messages: Sequence[Message] = ()
        if way.mine:
            until = claimed_until(tx.now_us, timeout_us=self._claim_timeout_us)
            messages, more = await direct.fan_out(tx, ids, way, owner=owner, claimed_until=until)
        else:
            more = bool(await tx.execute("stream.fan_out", ids=ids, now_us=tx.now_us))
        if more:
            tx.notify(STREAM_TOPIC)
        if found.ordered:
            await key.take_places(tx, ids)
        await tx.write("outbox.mark_published", ids=ids, now_us=tx.now_us)
        return messages


async def outbox_due_at(tx: Tx) -> int | None:
    """When the next outbox entry is due; None: it is empty."""
    levels = await tx.fetch_all("outbox.levels")
    return min((level["next_at"] for level in levels), default=None)
