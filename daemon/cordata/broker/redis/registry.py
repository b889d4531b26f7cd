"""What the store knows of Redis: its history, its streams, and how far each group is in each.

A group has a mark in a stream before the first entry is added that it is to get. The mark is the
position up to which it has handled everything, or has it in the store; the primary moves it on. So
whatever Redis loses, the store can tell what a group did not get.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from cordata.broker.redis.complaint import WRONG_TYPE
from cordata.broker.redis.connection import Connection, Refused
from cordata.broker.redis.naming import Keys, Stream, id_of, position_of, rank_of
from cordata.broker.settle import STREAM_TOPIC
from cordata.store import Store, Tx

#: Wakes the primary: the data of Redis is not what the store knows of.
REDIS_TOPIC = "redis"


class Mark(NamedTuple):
    """One group in one stream."""

    stream: Stream
    group: str


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What the tables say."""

    #: Whether a primary has ever looked through it.
    seen: bool = False
    #: Of the server's process and of its data; "" while the primary looks through it.
    run_id: str = ""
    epoch: str = ""
    #: The last position that the primary has seen.
    positions: Mapping[Stream, int] = field(default_factory=dict)
    #: Up to there entries may have been handled already.
    floors: Mapping[Stream, int] = field(default_factory=dict)
    marks: Mapping[Mark, int] = field(default_factory=dict)

    def without(self, strange: Collection[Stream]) -> Knowledge:
        """But for some streams."""
        if not strange:
            return self
        return replace(
            self,
            positions={s: at for s, at in self.positions.items() if s not in strange},
            floors={s: at for s, at in self.floors.items() if s not in strange},
            marks={m: at for m, at in self.marks.items() if m.stream not in strange},
        )

    @cached_property
    def _streams(self) -> dict[str, list[Stream]]:
        found: dict[str, list[Stream]] = {}
        for mark in sorted(self.marks, key=lambda mark: (rank_of(mark.stream), mark.stream)):
            found.setdefault(mark.group, []).append(mark.stream)
        return found

    def streams_of(self, group: str) -> list[Stream]:
        """Where a group has a mark, so that there may be something to read; most urgent first."""
        return self._streams.get(group, [])


async def load(tx: Tx) -> Knowledge:
    """For a unit: what the tables say now."""
    server = await tx.fetch_one("redis.server")
    streams = await tx.fetch_all("redis.streams")
    marks = await tx.fetch_all("redis.marks")
    return Knowledge(
        seen=server is not None,
        run_id=server["run_id"] if server else "",
        epoch=server["epoch"] if server else "",
        positions={Stream(r["type"], r["level"]): r["position"] for r in streams},
        floors={Stream(r["type"], r["level"]): r["floor"] for r in streams},
        marks={Mark(Stream(r["type"], r["level"]), r["group"]): r["position"] for r in marks},
    )


class Made(NamedTuple):
    """What `set_up` did."""

    #: Whose mark is new.
    new: list[Mark]
    #: Whose key is no stream.
    strange: dict[Mark, Refused]


async def set_up(
    store: Store,
    keys: Keys,
    connection: Connection,
    wanted: Iterable[Mark],
    known: Mapping[Mark, int],
    *,
    timeout_s: float,
) -> Made:
    """Make the groups in Redis and their marks in the store, for those that lack one or both.

    A group without a mark begins behind what is in the stream now; one with a mark, which Redis has
    lost, at its mark. Where a key is no stream there is no group.
    Raises: BrokerUnavailable, Refused, StoreUnavailable.
    """
    marks = list(wanted)
    strange: dict[Mark, Refused] = {}
    if not marks:
        return Made([], strange)
    replies = await connection.call(
        *(
            ("XGROUP", "CREATE", keys.of(m.stream), m.group, _start(known.get(m)), "MKSTREAM")
            for m in marks
        ),
        timeout_s=timeout_s,
    )
    for mark, reply in zip(marks, replies, strict=True):
        if isinstance(reply, Refused) and reply.kind == WRONG_TYPE:
            strange[mark] = reply
        elif isinstance(reply, Refused) and reply.kind != "BUSYGROUP":
            raise reply
    new = {}
    for mark in marks:
        if mark not in known and mark not in strange:
            at = await position_in(connection, keys.of(mark.stream), mark.group, timeout_s)
            new[mark] = at or 0

    async def unit(tx: Tx) -> None:
        for mark, position in sorted(new.items()):
            row = {"type": mark.stream.type, "level": mark.stream.level, "position": position}
            await tx.write("redis.add_stream", **row)
            await tx.write("redis.add_mark", **row, group=mark.group)
        tx.notify(STREAM_TOPIC)  # for those that read it: there is one stream more

    if new:
        await store.run(unit)
    return Made(list(new), strange)


def _start(position: int | None) -> str:
    return "$" if position is None else id_of(position)


async def position_in(connection: Connection, key: str, group: str, timeout_s: float) -> int | None:
    """Up to where a group has handled everything in a stream; None: Redis has no such group."""
    groups, pending = await connection.call(
        ("XINFO", "GROUPS", key), ("XPENDING", key, group), timeout_s=timeout_s
    )
    if isinstance(groups, Refused) or isinstance(pending, Refused):
        return None
    for facts in map(as_dict, groups):
        if facts[b"name"] == group.encode():
            return handled_to(facts, pending)
    return None


def handled_to(facts: Mapping[bytes, Any], pending: Any) -> int:
    """Up to where a group has handled everything: of XINFO GROUPS and, asked later, XPENDING."""
    delivered = position_of(facts[b"last-delivered-id"])
    return min(delivered, position_of(pending[1]) - 1) if pending and pending[0] else delivered


def as_dict(flat: list[Any]) -> dict[bytes, Any]:
    """Names and values of an answer of XINFO, which come in turns."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
