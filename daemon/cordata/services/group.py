"""Consumer groups of an application; groups that no process has; types that no group handles."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Collection, Sequence
from cordata.broker.factory import is_store

from cordata import events
from cordata.broker import Queue
from cordata.broker.group import Group
from cordata.broker.opening import is_store
from cordata.clock import from_us
from cordata.config.sections import BrokerConfig, EngineConfig
from cordata.context import Context
from cordata.core.retry import Backoff
from cordata.errors import StoreUnavailable
from cordata.log import fields, logger
from cordata.registry import Handler
from cordata.services.leadership import Leadership
from cordata.services.loop import pause
from cordata.store import Row, Store, Tx, published_types

log = logger("cordata.groups")

#: No process has had a group for so long: an alert.
_ABSENT_S = 3600.0
_ABSENT_EVERY_S = 300.0
#: After a start of the whole system, workers have this long to say which groups they have.
_GRACE_S = 600.0
_UNHANDLED_EVERY_S = 1.0


def groups_of(config: BrokerConfig, handlers: Sequence[Handler]) -> list[Group]:
    """The consumer groups of an application. What wants the order of keys never goes by Redis.

    Raises: ConfigError.
    """
    if is_store(config):
        return [Group(one.group, one.type, one.key) for one in handlers]
    from cordata.broker.redis.relay import GROUP

    relay = Group(GROUP, "*")
    return [
        relay,
        *(Group(one.group, one.type, one.key, "store" if one.key else "redis") for one in handlers),
    ]


def make_queue(
    store: Store, handlers: Sequence[Handler], engine: EngineConfig, *, owner: str
) -> Queue:
    """The queue on the store, as the process `owner` sees it."""
    return Queue(
        store,
        owner=owner,
        retries={one.group: one.retries for one in handlers},
        keyed={one.group for one in handlers if one.key},
        backoff=Backoff(engine.retry_min_s, engine.retry_max_s),
    )


class AbsentGroupService:
    """On the primary: an alert for a group that no process has had for an hour, since its events
    wait. Each absence is reported once.
    """

    name = "absent groups"

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        #: Group -> since when it is absent, of those that were reported.
        self._reported: dict[str, int] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop`."""
        ctx = await self._leadership.wait(stop)
        await pause(stop, _GRACE_S)
        while ctx is not None and not stop.is_set():
            try:
                await self.run_once(ctx)
            except StoreUnavailable as error:
                log.info("whether each group has a process is not known: %s", error)
            await pause(stop, _ABSENT_EVERY_S)

    async def run_once(self, ctx: Context) -> list[str]:
        """One look. Returns the groups that are absent."""
        before = ctx.now_us() - int(_ABSENT_S * 1e6)

        async def unit(tx: Tx) -> list[Row]:
            return await tx.fetch_all("group.absent", before=before)

        absent = {row["group"]: row["present_at"] for row in await ctx.store.read(unit)}
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

    name = "unhandled types"

    def __init__(self, store: Store, handled: Collection[str]) -> None:
        """`handled`: the types that this application handles, or publishes for others."""
        self._store = store
        self._handled = handled
        #: Types that have a group, or that were warned of.
        self._known = set(handled)

    async def run(self, stop: asyncio.Event) -> None:
        """Look until `stop`."""
        while not stop.is_set():
            try:
                await self.run_once()
            except StoreUnavailable:
                pass  # the next look finds them, too
            await pause(stop, _UNHANDLED_EVERY_S)

    async def run_once(self) -> None:
        """One look. It reads the store only when a new type was published."""
        if not (new := published_types - self._known):
            return

        async def unit(tx: Tx) -> list[Row]:
            return await tx.fetch_all("group.handled_types")

        handled = {row["type"] for row in await self._store.read(unit)}
        self._known |= new
        for type_ in sorted(new - handled):
            near = difflib.get_close_matches(type_, self._handled, n=1, cutoff=0.6)
            log.warning(
                "no group handles events of type %r: they are dropped%s",
                type_,
                f" (did you mean {near[0]!r}?)" if near else "",
                extra=fields(event_type=type_),
            )
