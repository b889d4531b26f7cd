"""What the store knows of Redis, and the groups that Redis has to have.

A group has a committed position in a stream before the first entry is added that it is to get. Up
to there it has handled everything, or has it in the store; the primary moves it on. So whatever
Redis loses, the store can tell what a group did not get.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from cordata import clock
from cordata.broker.redis.refusal_log import WRONG_TYPE, RefusalLog
from cordata.broker.redis.server import RedisServer, code_of, describe
from cordata.broker.redis.stream import NORMAL, Keys, Stream, id_of, position_of, rank_of
from cordata.broker.settle import STREAM_TOPIC
from cordata.core.retry import next_delay_s
from cordata.store import Store, Tx

#: Wakes the primary: the data of Redis is not what the store knows.
REDIS_TOPIC = "redis"
#: First and longest pause while Redis refuses to make a group.
_FIRST_S, _LONGEST_S = 0.5, 10.0


class StreamGroup(NamedTuple):
    """A consumer group in one stream."""

    stream: Stream
    group: str


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """What the tables say."""

    #: Whether a primary has ever examined a Redis.
    is_known: bool = False
    #: Of the server's process and of its data; "" while the primary examines it.
    run_id: str = ""
    epoch: str = ""
    #: The last entry that the primary has seen.
    last: Mapping[Stream, int] = field(default_factory=dict)
    #: Entries up to there may have been handled before Redis lost data.
    recheck_to: Mapping[Stream, int] = field(default_factory=dict)
    #: The committed positions.
    committed: Mapping[StreamGroup, int] = field(default_factory=dict)

    def without(self, streams: Collection[Stream]) -> StoredState:
        """But for some streams."""
        if not streams:
            return self
        return replace(
            self,
            last={s: at for s, at in self.last.items() if s not in streams},
            recheck_to={s: at for s, at in self.recheck_to.items() if s not in streams},
            committed={p: at for p, at in self.committed.items() if p.stream not in streams},
        )

    @cached_property
    def _streams(self) -> dict[str, list[Stream]]:
        found: dict[str, list[Stream]] = {}
        for pair in sorted(self.committed, key=lambda pair: (rank_of(pair.stream), pair.stream)):
            found.setdefault(pair.group, []).append(pair.stream)
        return found

    def streams_of(self, group: str) -> list[Stream]:
        """Where there may be something for a group to read; most urgent first."""
        return self._streams.get(group, [])


async def load(tx: Tx) -> StoredState:
    """For a unit: what the tables say now."""
    server = await tx.fetch_one("redis.server")
    streams = await tx.fetch_all("redis.streams")
    groups = await tx.fetch_all("redis.marks")
    return StoredState(
        is_known=server is not None,
        run_id=server["run_id"] if server else "",
        epoch=server["epoch"] if server else "",
        last={Stream(r["type"], r["level"]): r["position"] for r in streams},
        recheck_to={Stream(r["type"], r["level"]): r["floor"] for r in streams},
        committed={
            StreamGroup(Stream(r["type"], r["level"]), r["group"]): r["position"] for r in groups
        },
    )


class Made(NamedTuple):
    """What `make_groups` did."""

    #: Those that have a committed position from now on.
    new: list[StreamGroup]
    #: Those whose key is no stream.
    refused: dict[StreamGroup, ResponseError]


async def make_groups(
    store: Store,
    keys: Keys,
    server: RedisServer,
    wanted: Iterable[StreamGroup],
    committed: Mapping[StreamGroup, int],
) -> Made:
    """Make groups in Redis and their committed positions in the store, where they are missing.

    A new group begins behind what is in the stream now; one that Redis has lost, at its committed
    position. Raises: BrokerUnavailable, ResponseError, StoreUnavailable.
    """
    pairs = list(wanted)
    refused: dict[StreamGroup, ResponseError] = {}
    pipe = server.pipeline()
    for pair in pairs:
        start = id_of(committed[pair]) if pair in committed else "$"
        pipe.xgroup_create(keys.of(pair.stream), pair.group, start, mkstream=True)
    for pair, reply in zip(pairs, await server.execute(pipe), strict=True):
        if isinstance(reply, ResponseError) and code_of(reply) == WRONG_TYPE:
            refused[pair] = reply
        elif isinstance(reply, ResponseError) and code_of(reply) != "BUSYGROUP":
            raise reply
    new: dict[StreamGroup, int] = {}
    for pair in pairs:
        if pair not in committed and pair not in refused:
            new[pair] = await _handled_in(server, keys.of(pair.stream), pair.group) or 0

    async def unit(tx: Tx) -> None:
        for pair, position in sorted(new.items()):
            row = {**pair.stream._asdict(), "position": position}
            await tx.write("redis.add_stream", **row)
            await tx.write("redis.add_mark", **row, group=pair.group)
        tx.notify(STREAM_TOPIC)  # for those that read it: there is one stream more

    if new:
        await store.run(unit)
    return Made(list(new), refused)


async def _handled_in(server: RedisServer, key: str, group: str) -> int | None:
    """Up to where a group has handled everything; None: Redis has no such group."""
    pipe = server.pipeline()
    pipe.xinfo_groups(key)
    pipe.xpending(key, group)
    groups, pending = await server.execute(pipe)
    if isinstance(groups, ResponseError) or isinstance(pending, ResponseError):
        return None
    for facts in groups:
        if facts["name"] == group.encode():
            return handled_to(facts, pending)
    return None


def handled_to(facts: Mapping[str, Any], pending: Mapping[str, Any] | None) -> int:
    """Up to where a group has handled everything: of XINFO GROUPS and, asked later, XPENDING."""
    delivered = position_of(facts["last-delivered-id"])
    if pending and pending["pending"]:
        return min(delivered, position_of(pending["min"]) - 1)
    return delivered


class GroupSetup:
    """The groups of one process: made before they read, and made again when Redis has lost them.

    What Redis refuses (it has no memory left, the user may not, the key is no stream) is tried
    again after a pause that grows. Everything else is read meanwhile.
    """

    def __init__(self, store: Store, keys: Keys, server: RedisServer) -> None:
        #: Group -> event type, of those that read streams.
        self.types: dict[str, str] = {}
        #: Why some groups cannot be made; "" when all could be.
        self.trouble = ""
        self._store = store
        self._keys = keys
        self._server = server
        #: Some may have no committed position yet.
        self._is_incomplete = True
        #: Lost by Redis, which refuses to make them again: not read during the pause.
        self._lost: frozenset[str] = frozenset()
        self._failures = 0
        self._next_deadline = 0.0
        self._refusal_log = RefusalLog()

    def register(self, groups: Mapping[str, str]) -> None:
        """These read streams: group -> event type."""
        self.types |= groups
        self._is_incomplete, self._next_deadline = True, 0.0

    def is_due(self) -> bool:
        """Whether `make` has something to do, and no pause is in the way."""
        return self._is_incomplete and clock.monotonic() >= self._next_deadline

    def is_paused(self, group: str) -> bool:
        """Whether a group cannot be read for a while."""
        return group in self._lost and clock.monotonic() < self._next_deadline

    async def make(self) -> StoredState:
        """Make the groups that have no committed position. Returns what the store knows then.

        Raises: BrokerUnavailable, StoreUnavailable.
        """
        state = await self._store.read(load)
        pairs = [StreamGroup(Stream(type, NORMAL), group) for group, type in self.types.items()]
        wanted = [pair for pair in pairs if pair not in state.committed]
        is_new, self._is_incomplete = await self._attempt(wanted, state)
        return await self._store.read(load) if is_new else state

    async def restore(self, groups: Collection[str]) -> StoredState:
        """Redis lost groups, or what they read: they go on at their committed positions.

        What else is lost the primary finds out, even if it comes later than the groups.
        Raises: BrokerUnavailable, StoreUnavailable.
        """

        async def distrust(tx: Tx) -> None:
            await tx.write("redis.distrust")
            tx.notify(REDIS_TOPIC)

        state = await self._store.read(load)
        await self._store.run(distrust)
        wanted = [pair for pair in state.committed if pair.group in groups]
        _, is_refused = await self._attempt(wanted, state)
        self._lost = self._lost.difference(groups).union(groups if is_refused else ())
        return state

    async def _attempt(
        self, wanted: Collection[StreamGroup], state: StoredState
    ) -> tuple[bool, bool]:
        """(Whether some are new, whether some were refused)."""
        refusals: dict[str, ResponseError] = {}
        new: Collection[StreamGroup] = ()
        try:
            new, refused = await make_groups(
                self._store, self._keys, self._server, wanted, state.committed
            )
            refusals = {self._keys.of(pair.stream): error for pair, error in refused.items()}
        except ResponseError as error:
            refusals = {"new groups": error}
        for what, refusal in refusals.items():
            self._refusal_log.refused(what, refusal)
            self.trouble = describe(refusal)
        if refusals:
            self._failures += 1
            share = 0.5 + 0.5 * random.random()
            pause_s = next_delay_s(self._failures, share, first_s=_FIRST_S, longest_s=_LONGEST_S)
            self._next_deadline = clock.monotonic() + pause_s
        elif wanted:
            self.trouble, self._failures = "", 0
        return bool(new), bool(refusals)
