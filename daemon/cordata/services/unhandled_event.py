"""Warns of events that are not handled: no process runs their group, or no group has their type."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Collection

from cordata import events
from cordata.clock import from_us
from cordata.errors import StoreUnavailable
from cordata.log import fields, logger
from cordata.services.loop import pause
from cordata.store import Store, published_types

log = logger("cordata.groups")

#: An alert is raised when no process has run a group for this long.
ABSENT_S = 3600.0
_ABSENT_EVERY_S = 300.0
#: After a start of the whole system, workers have this long to say which groups they have.
_GRACE_S = 600.0
_TYPES_EVERY_S = 1.0


class AbsentGroupService:
    """On the primary: an alert for a group that no process has had for an hour, since its events
    wait. Each absence is reported once.
    """

    name = "absent_groups"

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Group -> since when it is absent, of those that were reported.
        self._reported: dict[str, int] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Check until `stop`."""
        await pause(stop, _GRACE_S)
        while not stop.is_set():
            try:
                await self.run_once()
            except StoreUnavailable as error:
                log.info("whether each group has a process is not known: %s", error)
            await pause(stop, _ABSENT_EVERY_S)

    async def run_once(self) -> list[str]:
        """One pass. Returns the groups that are absent."""
        before = self._store.now_us() - int(ABSENT_S * 1e6)

        rows = await self._store.read(lambda tx: tx.fetch_all("group.absent", before=before))
        absent = {row["group"]: row["present_at"] for row in rows}
        for group, present_at in absent.items():
            if self._reported.get(group) != present_at:
                log.error(
                    "no process has had the consumer group %s since %s: its events wait",
                    *(group, f"{from_us(present_at):%Y-%m-%d %H:%M} UTC"),
                    extra=fields(events.GROUP_ABSENT, group=group),
                )
        self._reported = absent
        return list(absent)


class UnhandledTypeService:
    """In each worker: warns of types that it publishes and that no group handles, of each once."""

    name = "unhandled_types"

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
            await pause(stop, _TYPES_EVERY_S)

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
                "no group handles events of type %r: they are only stored%s",
                type_,
                f" (did you mean {near[0]!r}?)" if near else "",
                extra=fields(event_type=type_),
            )
