"""Warnings of published event types that no group handles."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Collection

from cordata.errors import StoreUnavailable
from cordata.log import fields, logger
from cordata.services.loop import pause
from cordata.store import Store, published_types

log = logger("cordata.groups")

_EVERY_S = 1.0


class UnhandledTypeService:
    """In each worker: warns of types that it publishes and that no group handles, of each once."""

    name = "unhandled types"

    def __init__(self, store: Store, handled: Collection[str]) -> None:
        """`handled`: the types that this application handles, or publishes for others."""
        self._store = store
        self._handled = handled
        #: Types that have a group, or that were warned of.
        self._known = set(handled)

    async def run(self, stop: asyncio.Event) -> None:
        """Check until `stop`."""
        while not stop.is_set():
            try:
                await self.run_once()
            except StoreUnavailable:
                pass  # the next pass finds them, too
            await pause(stop, _EVERY_S)

    async def run_once(self) -> None:
        """One pass. It reads the store only when a new type was published."""
        if not (new := published_types - self._known):
            return

        rows = await self._store.read(lambda tx: tx.fetch_all("group.handled_types"))
        handled = {row["type"] for row in rows}
        self._known |= new
        for type_ in sorted(new - handled):
            near = difflib.get_close_matches(type_, self._handled, n=1, cutoff=0.6)
            log.warning(
                "no group handles events of type %r: they are dropped%s",
                type_,
                f" (did you mean {near[0]!r}?)" if near else "",
                extra=fields(event_type=type_),
            )
