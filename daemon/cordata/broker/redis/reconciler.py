"""The reconciler: the primary keeps Redis and the store in step, and makes up for what Redis lost.

Redis may lose anything at any time. The store knows which copy of the data is the good one, by the
run id of the server's process and an epoch that is a key in the data. Relays add entries, and mark
them as published, only while both are what the store says (see publisher.py).

                  find_loss: the run id is another one, the epoch is gone, a last
                  entry is older than one that was seen, a group is missing (see Loss)
        ┌─────────┐ ────────────────────────────────────────────────> ┌────────────┐
        │ IN STEP │                                                   │ RECOVERING │
        └─────────┘ <──────────────────────────────────────────────── └────────────┘
         │  ^   │      open_gate: new epoch in Redis, then run id,     │  ^
         │  │   │      epoch and `recheck_to` in the store             │  │ any failure: Redis or
         │  │   └─ a consumer misses its group: redis.distrust         │  │ the store unavailable,
         │  │      (the store's run id = "")                           │  │ the primary replaced:
         └──┘                                                          └──┘ the next pass begins
        save_positions, then trim, then drop_groups                     anew, with close_gate

    RECOVERING, in this order; doing a part of it twice changes nothing:
      close_gate       the store's run id = "": relays add nothing and mark nothing as published
      make_groups      each group again, at its committed position
      raise_ids        new entries get ids behind every id that was ever given, so that a position
                       means one entry for ever; what is in the stream now may have been handled
                       before: consumers look it up (`recheck_to`)
      publish_again    for each group, each event behind its committed position that is neither
                       marked as handled, nor in the store, nor in its stream: into the store,
                       under the same event id
      open_gate        from here on this is the good copy

What may fail, and what holds then:
    Redis loses data while RECOVERING        find_loss sees it in the next pass: no epoch, no group,
                                             or another run id than open_gate wrote
    an old primary is still at work          its writes are fenced by its term: LeaseLost
    a relay added before, marks after        it marks only under the run id and epoch it added to;
                                             else its entries go back, and are added again
    an entry was trimmed, not lost           trim never passes a stored position: what is gone and
                                             above a committed position was lost
    a group handled what it had not
    acknowledged                             its mark of the effect's transaction says so; without
                                             one the event is handled again
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from cordata import clock, events
from cordata.broker.redis import pending
from cordata.broker.redis.refusal_log import WRONG_TYPE, RefusalLog
from cordata.broker.redis.server import RedisServer, code_of
from cordata.broker.redis.state import StoredState, StreamGroup, handled_to, load
from cordata.broker.redis.stream import Keys, Stream, id_of, position_of
from cordata.broker.settle import STREAM_TOPIC
from cordata.errors import BrokerUnavailable
from cordata.log import fields, logger
from cordata.store import OUTBOX_TOPIC, Row, Store, Tx

log = logger("cordata.redis")

#: Between two looks for consumers that nobody uses any more.
_UNUSED_S = 300.0
#: Outbox entries of one step of publish_again.
_PAGE = 500
#: The highest id: a read of what comes after it ends early only when the connection is lost.
_NEVER = b"18446744073709551615-18446744073709551615"
#: KEYS: the stream. ARGV: ids. Returns for each how many entries there are: 0 or 1.
_PRESENT = """
local found = {}
for n, id in ipairs(ARGV) do found[n] = #redis.call('XRANGE', KEYS[1], id, id) end
return found
"""


class Loss(StrEnum):
    """How Redis differs from what the store knows; the text is for the log."""

    NEW = "it is new"
    DISTRUSTED = "a group was missed, or a recovery did not end"
    RESTARTED = "its process is another one"
    EMPTIED = "its data is gone"
    OLDER = "its last {} is an older one"
    NO_GROUP = "it does not know {}"


class _Look(NamedTuple):
    """What Redis says of a stream."""

    #: Of the last entry ever added.
    last: int
    #: Group -> up to where it has handled everything.
    handled: dict[str, int]


class Reconciler:
    """Of the one process that is the primary; `store` writes with its term."""

    def __init__(self, store: Store, server: RedisServer, keys: Keys, *, window_s: float) -> None:
        """`window_s`: what was published longer ago is not published again."""
        self._store = store
        self._server = server
        self._keys = keys
        self._window_us = int(window_s * 1e6)
        #: Up to where each stream was trimmed, as far as this process knows.
        self._trimmed: dict[Stream, int] = {}
        self._unused_deadline = 0.0
        self._refusal_log = RefusalLog()
        #: Commands of the last pass.
        self.cost = 0

    @property
    def pause_s(self) -> float:
        """Seconds until a pass makes the next attempt to connect."""
        return self._server.pause_s

    def status(self) -> str:
        """For STATUS=: what is wrong, "" when nothing is."""
        return f"Redis: {self._server.reason}" if self._server.reason else ""

    async def run_once(self, progress: Callable[[], None] = lambda: None) -> bool:
        """One pass. Returns whether anything had moved.

        `progress`: called now and then while it goes on, which may be for minutes when Redis lost
        much.
        Raises: BrokerUnavailable, ResponseError, StoreUnavailable, LeaseLost.
        """
        await self._server.connect()
        state, looks = await self._learn()
        loss = await self._find_loss(state, looks)
        if loss:
            await self._recover(state, loss, progress)
            state, looks = await self._learn()
        moved = await self._save_positions(state, looks)
        await self._trim(state, looks)
        await self._drop_groups(state, looks)
        if clock.monotonic() >= self._unused_deadline:
            self._unused_deadline = clock.monotonic() + _UNUSED_S
            await pending.remove_unused_consumers(self._server, self._keys, state.committed)
        return moved or bool(loss)

    async def watch(self, ring: Callable[[], None]) -> None:
        """Call `ring` when the connection is lost; until cancelled."""
        while True:
            try:
                await self._server.connect()
                await self._server.wait_for_entries(self._keys.wake, _NEVER)
            except BrokerUnavailable:
                ring()
                await asyncio.sleep(max(self._server.pause_s, 0.1))

    # IN STEP

    async def _learn(self) -> tuple[StoredState, dict[Stream, _Look]]:
        """What the store knows and what Redis says; without keys that are no streams.

        They are no reason to let the others wait. When they are gone, what was there is lost data
        as any other.
        """
        state = await self._store.read(load)
        looks, refused = await self._look(state)
        return state.without(refused), looks

    async def _look(self, state: StoredState) -> tuple[dict[Stream, _Look], set[Stream]]:
        """(What Redis says of the streams that it has, those whose key is no stream)."""
        refused: set[Stream] = set()
        streams = list(state.last)
        pipe = self._server.pipeline()
        for stream in streams:
            pipe.xinfo_stream(self._keys.of(stream))
            pipe.xinfo_groups(self._keys.of(stream))
        replies = await self._server.execute(pipe)
        found: dict[Stream, _Look] = {}
        busy: list[tuple[StreamGroup, Any]] = []
        pipe = self._server.pipeline()
        for stream, facts, groups in zip(streams, replies[::2], replies[1::2], strict=True):
            if isinstance(facts, ResponseError) or isinstance(groups, ResponseError):
                if isinstance(facts, ResponseError) and code_of(facts) == WRONG_TYPE:
                    refused.add(stream)
                    self._refusal_log.refused(self._keys.of(stream), facts)
                continue
            last, newest = _ends(facts)
            found[stream] = _Look(last, {})
            for group in groups:
                pair = StreamGroup(stream, group["name"].decode())
                if group["pending"]:
                    busy.append((pair, group))
                    pipe.xpending(self._keys.of(stream), pair.group)
                else:
                    # With nothing left to read it has handled all, also what was lost or trimmed.
                    handled = handled_to(group, None)
                    found[stream].handled[pair.group] = last if handled >= newest else handled
        for (pair, group), summary in zip(busy, await self._server.execute(pipe), strict=True):
            if not isinstance(summary, ResponseError):
                found[pair.stream].handled[pair.group] = handled_to(group, summary)
        self.cost = 1 + 2 * len(streams) + len(busy)
        return found, refused

    async def _find_loss(self, state: StoredState, looks: Mapping[Stream, _Look]) -> str:
        """How this is not the Redis that the store knows; "" when it is."""
        pipe = self._server.pipeline()
        pipe.get(self._keys.epoch)
        (epoch,) = await self._execute(pipe)
        if not state.run_id:
            return Loss.DISTRUSTED if state.is_known else Loss.NEW
        if state.run_id != self._server.run_id:
            return Loss.RESTARTED
        if epoch != state.epoch.encode():
            return Loss.EMPTIED
        for stream, position in state.last.items():
            if position and (stream not in looks or looks[stream].last < position):
                return Loss.OLDER.format(stream.type)
        missing = [pair for pair in state.committed if _handled(looks, pair) is None]
        return Loss.NO_GROUP.format(missing[0].group) if missing else ""

    async def _save_positions(self, state: StoredState, looks: Mapping[Stream, _Look]) -> bool:
        """Store how far streams and groups are. Returns whether there was anything to store."""
        last = [
            (stream, look.last)
            for stream, look in looks.items()
            if look.last > state.last.get(stream, 0)
        ]
        committed = [
            (pair, handled)
            for pair, position in state.committed.items()
            if (handled := _handled(looks, pair)) is not None and handled > position
        ]

        async def unit(tx: Tx) -> None:
            for stream, position in sorted(last):
                row = {**stream._asdict(), "position": position}
                await tx.write("redis.save_stream", **row, floor=0)
            for pair, position in sorted(committed):
                row = {**pair.stream._asdict(), "position": position}
                await tx.write("redis.save_mark", **row, group=pair.group)

        if last or committed:
            await self._store.run(unit)
        return bool(last or committed)

    async def _trim(self, state: StoredState, looks: Mapping[Stream, _Look]) -> None:
        """Remove what every group has handled, in Redis and by its stored position."""
        pipe = self._server.pipeline()
        for stream, look in looks.items():
            groups = {pair.group for pair in state.committed if pair.stream == stream}
            if not groups or groups - look.handled.keys():
                continue
            done_to = min(look.handled.values())
            if done_to > self._trimmed.get(stream, 0):
                self._trimmed[stream] = done_to
                pipe.xtrim(self._keys.of(stream), minid=id_of(done_to + 1), approximate=False)
        await self._server.execute(pipe)

    async def _drop_groups(self, state: StoredState, looks: Mapping[Stream, _Look]) -> None:
        """Remove groups that the store has forgotten, and those that read another stream now."""

        async def unit(tx: Tx) -> dict[str, tuple[str, bool]]:
            rows = await tx.fetch_all("redis.groups")
            return {row["group"]: (row["type"], bool(row["keyed"])) for row in rows}

        groups = await self._store.read(unit)
        gone: list[StreamGroup] = []
        for stream, look in looks.items():
            for name, handled in look.handled.items():
                is_drained = handled >= look.last
                is_elsewhere = name in groups and groups[name] != (stream.type, False)
                if name not in groups or (is_elsewhere and is_drained):
                    gone.append(StreamGroup(stream, name))

        async def forget(tx: Tx) -> None:
            for pair in sorted(gone):
                await tx.write("redis.drop_mark", **pair.stream._asdict(), group=pair.group)

        if gone:
            log.info("removed from Redis: %s", ", ".join(f"{p.group} in {p.stream}" for p in gone))
            await self._store.run(forget)
            pipe = self._server.pipeline()
            for pair in gone:
                pipe.xgroup_destroy(self._keys.of(pair.stream), pair.group)
            await self._server.execute(pipe)

    # RECOVERING

    async def _recover(self, state: StoredState, loss: str, progress: Callable[[], None]) -> None:
        """Make groups, ids and events whole; then this is the Redis that the store knows."""
        begun = clock.monotonic()
        if state.is_known:
            extra = fields(events.BROKER_RECOVERED)
            log.warning("Redis lost data, or may have: %s; recovering", loss, extra=extra)
        run_id, epoch = self._server.run_id, os.urandom(16).hex()
        await self._close_gate()
        await self._make_groups(state.committed)
        progress()
        recheck_to = await self._raise_ids(state)
        progress()
        count = await self._publish_again(state, progress)
        await self._open_gate(run_id, epoch, recheck_to)
        self._trimmed.clear()
        if state.is_known:
            took_s = clock.monotonic() - begun
            log.warning("republished %d events that Redis lost, in %.1f s", count, took_s)

    async def _close_gate(self) -> None:
        await self._set_server("", "")

    async def _open_gate(self, run_id: str, epoch: str, recheck_to: Mapping[Stream, int]) -> None:
        pipe = self._server.pipeline()
        pipe.set(self._keys.epoch, epoch)
        await self._execute(pipe)
        await self._set_server(run_id, epoch, recheck_to)

    async def _set_server(
        self, run_id: str, epoch: str, recheck_to: Mapping[Stream, int] = MappingProxyType({})
    ) -> None:
        async def unit(tx: Tx) -> None:
            await tx.write("redis.set_server", run_id=run_id, epoch=epoch, now_us=tx.now_us)
            for stream, position in sorted(recheck_to.items()):
                row = {**stream._asdict(), "position": position, "floor": position}
                await tx.write("redis.save_stream", **row)
            if run_id:
                tx.notify(OUTBOX_TOPIC)  # relays may go on
                tx.notify(STREAM_TOPIC)

        await self._store.run(unit)

    async def _make_groups(self, committed: Mapping[StreamGroup, int]) -> None:
        pipe = self._server.pipeline()
        for pair, position in committed.items():
            key = self._keys.of(pair.stream)
            pipe.xgroup_create(key, pair.group, id_of(position), mkstream=True)
        for reply in await self._server.execute(pipe):
            if isinstance(reply, ResponseError) and code_of(reply) != "BUSYGROUP":
                raise reply

    async def _raise_ids(self, state: StoredState) -> dict[Stream, int]:
        """New entries get ids behind all that were ever given, whatever the server's clock says.

        Returns for each stream up to where its entries may have been handled before.
        """
        streams = list({pair.stream for pair in state.committed})
        highest = await self._highest(state)
        looks, raised = self._server.pipeline(), self._server.pipeline()
        for stream in streams:
            looks.xinfo_stream(self._keys.of(stream))
        last: dict[Stream, int] = {}
        for stream, facts in zip(streams, await self._execute(looks), strict=True):
            last[stream] = _ends(facts)[0]
            if last[stream] < highest:
                raised.execute_command("XSETID", self._keys.of(stream), id_of(highest))
        await self._execute(raised)
        return last

    async def _highest(self, state: StoredState) -> int:
        """The highest position that any entry ever had."""

        async def unit(tx: Tx) -> int:
            row = await tx.fetch_one("redis.top")
            return row["position"] or 0 if row is not None else 0

        return max([await self._store.read(unit), *state.last.values(), *state.committed.values()])

    async def _publish_again(self, state: StoredState, progress: Callable[[], None]) -> int:
        """Page by page through what was published and may not be handled. Returns how many."""
        since = self._store.now_us() - self._window_us
        count = 0
        at = (min(state.committed.values(), default=0), 0)
        while True:
            page, undone = await self._page(at, since)
            progress()
            lost = await self._lost(undone)
            progress()
            if lost:
                count += await self._move_to_store(lost)
                progress()
            if len(page) < _PAGE:
                return count
            at = (page[-1]["position"], page[-1]["id"])

    async def _page(self, at: tuple[int, int], since: int) -> tuple[list[Row], list[Row]]:
        """Published entries behind a position, and the groups that have not done them."""

        async def unit(tx: Tx) -> tuple[list[Row], list[Row]]:
            page = await tx.fetch_all("redis.page", position=at[0], id=at[1], limit=_PAGE)
            ids = json.dumps([row["id"] for row in page])
            return page, await tx.fetch_all("redis.undone", ids=ids, since=since) if page else []

        return await self._store.read(unit)

    async def _lost(self, undone: Sequence[Row]) -> list[Row]:
        """Those that are not in their stream any more."""
        by_stream: dict[Stream, dict[int, list[Row]]] = {}
        for row in undone:
            of_stream = by_stream.setdefault(Stream(row["type"], row["level"]), {})
            of_stream.setdefault(row["position"], []).append(row)
        pipe = self._server.pipeline()
        for stream, positions in by_stream.items():
            pipe.eval(_PRESENT, 1, self._keys.of(stream), *map(id_of, positions))
        lost: list[Row] = []
        for positions, present in zip(by_stream.values(), await self._execute(pipe), strict=True):
            for rows, is_present in zip(positions.values(), present, strict=True):
                lost += () if is_present else rows
        return lost

    async def _move_to_store(self, lost: Sequence[Row]) -> int:
        async def unit(tx: Tx) -> int:
            rows = [
                [row["id"], row["event_id"], row["group"], "ready", 0, tx.now_us, "", 0, 0]
                for row in lost
            ]
            return await tx.execute("redis.keep", messages=json.dumps(sorted(rows)))

        return await self._store.run(unit)

    async def _execute(self, pipe: Pipeline) -> list[Any]:
        """As RedisServer.execute. Raises: ResponseError when anything is refused."""
        replies = await self._server.execute(pipe)
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        return replies

    def close(self) -> None:
        """Close the connection."""
        self._server.close()


def _ends(facts: Mapping[str, Any]) -> tuple[int, int]:
    """Positions of the last entry that was ever added, and of the last one that is there."""
    entry = facts["last-entry"]
    return position_of(facts["last-generated-id"]), position_of(entry[0]) if entry else 0


def _handled(looks: Mapping[Stream, _Look], pair: StreamGroup) -> int | None:
    look = looks.get(pair.stream)
    return look.handled.get(pair.group) if look else None
