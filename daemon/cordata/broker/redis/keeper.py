"""What the primary does for Redis: it keeps the marks, trims, and makes up for what Redis lost.

    pass:  is it the Redis that the store knows?  ──no──> recover
           how far is each group?  ──> marks (store) ──> trim what all groups have handled

A Redis that was restarted, emptied, failed over to a replica, or restored from an older copy shows
in its run id, its epoch key, or a last id before the one that the store has seen. Then groups are
made again at their marks, ids go on behind every one that was ever given, and events that a group
has not done, and that are not in their stream any more, are published to it again: in the store,
under the same event id. What is still in the stream comes from there; of entries that may have been
handled before, a reader looks first whether they were. Until that is done no relay adds anything.

Trimming never passes a mark that is not stored yet, so what is gone from a stream and above a mark
was lost, not trimmed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cordata import clock, events
from cordata.broker.redis import scan
from cordata.broker.redis.complaint import WRONG_TYPE, Complaints
from cordata.broker.redis.connection import Command, Connection, Refused
from cordata.broker.redis.dial import Dialer, Reach
from cordata.broker.redis.link import Link
from cordata.broker.redis.naming import Keys, Stream, id_of, position_of
from cordata.broker.redis.recovery import Recovery
from cordata.broker.redis.registry import Knowledge, Mark, as_dict, handled_to, load
from cordata.log import fields, logger
from cordata.store import Store, Tx

log = logger("cordata.redis")

_SWEEP_S = 300.0


class _Look(NamedTuple):
    """What Redis says of a stream."""

    #: Of the last entry ever added.
    last: int
    #: Group -> up to where it has handled everything.
    handled: dict[str, int]


class Keeper:
    """Of the one process that is the primary; `store` writes with its term."""

    def __init__(self, store: Store, dialer: Dialer, keys: Keys, *, window_s: float) -> None:
        """`window_s`: what was published longer ago is not published again."""
        self._store = store
        self._keys = keys
        self._timeout_s = dialer.timeout_s
        self._window_us = int(window_s * 1e6)
        self._reach = Reach()
        self._link = Link(dialer, self._reach)
        #: Up to where each stream was trimmed, as far as this process knows.
        self._trimmed: dict[Stream, int] = {}
        self._sweep_deadline = 0.0
        self._complaints = Complaints()
        #: Commands of the last pass.
        self.cost = 0

    @property
    def pause_s(self) -> float:
        """Seconds until a pass makes the next attempt to connect."""
        return self._link.pause_s

    def status(self) -> str:
        """For STATUS=: what is wrong, "" when nothing is."""
        return f"Redis: {self._reach.reason}" if self._reach.reason else ""

    async def run_once(self, progress: Callable[[], None] = lambda: None) -> bool:
        """One pass. Returns whether anything had moved.

        `progress`: called now and then while it goes on, which may be for minutes when Redis lost
        much.
        Raises: BrokerUnavailable, Refused, StoreUnavailable, LeaseLost.
        """
        connection = await self._link.ready()
        known, looks = await self._learn(connection)
        reason = await self._difference(connection, known, looks)
        if reason:
            await self._recover(connection, known, reason, progress)
            known, looks = await self._learn(connection)
        moved = await self._save(known, looks)
        await self._trim(connection, known, looks)
        await self._drop(connection, known, looks)
        if clock.monotonic() >= self._sweep_deadline:
            self._sweep_deadline = clock.monotonic() + _SWEEP_S
            await scan.sweep(connection, self._keys, known.marks, timeout_s=self._timeout_s)
        return moved or bool(reason)

    async def watch(self, ring: Callable[[], None]) -> None:
        """Call `ring` when the connection is lost; until cancelled."""
        while True:
            if (connection := self._link.connection) is None:
                await asyncio.sleep(1.0)
            else:
                await connection.closed.wait()
                ring()

    async def _learn(self, connection: Connection) -> tuple[Knowledge, dict[Stream, _Look]]:
        """What the store knows and what Redis says; without keys that are no streams.

        They are no reason to let the others wait. When they are gone, what was there is lost data
        as any other.
        """
        known = await self._store.read(load)
        strange: set[Stream] = set()
        looks = await self._look(connection, known, strange)
        return known.without(strange), looks

    async def _look(
        self, connection: Connection, known: Knowledge, strange: set[Stream]
    ) -> dict[Stream, _Look]:
        """What Redis says of the known streams; those that it does not have are missing.

        Those that are something else are `strange`.
        """
        streams = list(known.positions)
        commands: list[Command] = []
        for stream in streams:
            commands += [(*("XINFO", word), self._keys.of(stream)) for word in ("STREAM", "GROUPS")]
        replies = await self._call(connection, commands)
        found: dict[Stream, _Look] = {}
        busy: list[tuple[Mark, Any]] = []
        for stream, facts, groups in zip(streams, replies[::2], replies[1::2], strict=True):
            if isinstance(facts, Refused) or isinstance(groups, Refused):
                if isinstance(facts, Refused) and facts.kind == WRONG_TYPE:
                    strange.add(stream)
                    self._complaints.refused(self._keys.of(stream), facts)
                continue
            last, top = _ends(as_dict(facts))
            found[stream] = _Look(last, {})
            for group in map(as_dict, groups):
                mark = Mark(stream, group[b"name"].decode())
                if group[b"pending"]:
                    busy.append((mark, group))
                else:
                    # With nothing left to read it has handled all, also what was lost or trimmed.
                    handled = handled_to(group, None)
                    found[stream].handled[mark.group] = last if handled >= top else handled
        commands = [("XPENDING", self._keys.of(mark.stream), mark.group) for mark, _ in busy]
        for (mark, group), pending in zip(
            busy, await self._call(connection, commands), strict=True
        ):
            if not isinstance(pending, Refused):
                found[mark.stream].handled[mark.group] = handled_to(group, pending)
        self.cost = 1 + 2 * len(streams) + len(busy)
        return found

    async def _difference(
        self, connection: Connection, known: Knowledge, looks: Mapping[Stream, _Look]
    ) -> str:
        """How this is not the Redis that the store knows; "" when it is."""
        (epoch,) = await self._call(connection, [("GET", self._keys.epoch)])
        if known.run_id != connection.run_id:
            return "its process is another one" if known.seen else "it is new"
        if epoch != known.epoch.encode():
            return "its data is gone"
        for stream, position in known.positions.items():
            if position and (stream not in looks or looks[stream].last < position):
                return f"its last {stream.type} is an older one"
        missing = [mark for mark in known.marks if _handled(looks, mark) is None]
        return f"it does not know {missing[0].group}" if missing else ""

    async def _recover(
        self,
        connection: Connection,
        known: Knowledge,
        reason: str,
        progress: Callable[[], None],
    ) -> None:
        begun = clock.monotonic()
        if known.seen:
            extra = fields(events.BROKER_RECOVERED)
            log.warning("Redis is not as it was: %s; looking through it", reason, extra=extra)
        recovery = Recovery(
            self._store,
            connection,
            self._keys,
            known,
            progress=progress,
            timeout_s=self._timeout_s,
        )
        count = await recovery.run(
            epoch=os.urandom(16).hex(), since=self._store.now_us() - self._window_us
        )
        self._trimmed.clear()
        if known.seen:
            took_s = clock.monotonic() - begun
            log.warning("published %d messages again that Redis lost, in %.1f s", count, took_s)

    async def _save(self, known: Knowledge, looks: Mapping[Stream, _Look]) -> bool:
        """Move the marks on. Returns whether there was anything to move."""
        positions = [
            (stream, look.last)
            for stream, look in looks.items()
            if look.last > known.positions.get(stream, 0)
        ]
        marks = [
            (mark, handled)
            for mark, position in known.marks.items()
            if (handled := _handled(looks, mark)) is not None and handled > position
        ]

        async def unit(tx: Tx) -> None:
            for stream, last in sorted(positions):
                await tx.write("redis.save_stream", **stream._asdict(), position=last, floor=0)
            for mark, handled in sorted(marks):
                await tx.write(
                    "redis.save_mark",
                    **mark.stream._asdict(),
                    group=mark.group,
                    position=handled,
                )

        if positions or marks:
            await self._store.run(unit)
        return bool(positions or marks)

    async def _trim(
        self, connection: Connection, known: Knowledge, looks: Mapping[Stream, _Look]
    ) -> None:
        """Remove what every group has handled, in Redis and by its stored mark."""
        commands: list[Command] = []
        for stream, look in looks.items():
            groups = {mark.group for mark in known.marks if mark.stream == stream}
            if not groups or groups - look.handled.keys():
                continue
            done_to = min(look.handled.values())
            if done_to > self._trimmed.get(stream, 0):
                self._trimmed[stream] = done_to
                commands.append(("XTRIM", self._keys.of(stream), "MINID", "=", id_of(done_to + 1)))
        await self._call(connection, commands)

    async def _drop(
        self, connection: Connection, known: Knowledge, looks: Mapping[Stream, _Look]
    ) -> None:
        """Remove groups that the store has forgotten, and those that read another stream now."""

        async def unit(tx: Tx) -> dict[str, tuple[str, bool]]:
            rows = await tx.fetch_all("redis.groups")
            return {row["group"]: (row["type"], bool(row["keyed"])) for row in rows}

        groups = await self._store.read(unit)
        gone: list[Mark] = []
        for stream, look in looks.items():
            for name, handled in look.handled.items():
                drained = handled >= look.last
                moved = name in groups and groups[name] != (stream.type, False)
                if name not in groups or (moved and drained):
                    gone.append(Mark(stream, name))

        async def forget(tx: Tx) -> None:
            for mark in sorted(gone):
                await tx.write("redis.drop_mark", **mark.stream._asdict(), group=mark.group)

        if gone:
            log.info("removed from Redis: %s", ", ".join(f"{m.group} in {m.stream}" for m in gone))
            await self._store.run(forget)
            await self._call(
                connection,
                [("XGROUP", "DESTROY", self._keys.of(m.stream), m.group) for m in gone],
            )

    async def _call(self, connection: Connection, commands: list[Command]) -> list[Any]:
        if not commands:
            return []
        return await connection.call(*commands, timeout_s=self._timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def _ends(facts: Mapping[bytes, Any]) -> tuple[int, int]:
    """Of the last entry that was ever added, and of the last one that is there."""
    entry = facts[b"last-entry"]
    return position_of(facts[b"last-generated-id"]), position_of(entry[0]) if entry else 0


def _handled(looks: Mapping[Stream, _Look], mark: Mark) -> int | None:
    look = looks.get(mark.stream)
    return look.handled.get(mark.group) if look else None
