"""The reconciler: the primary compares Redis with the store, and republishes what Redis lost.

Redis may lose anything at any time; no event exists only there. The store has the
events, the marks of what each group has handled, and `redis_sent`: one row for each entry that a
relay has added to a stream and that some group may not have handled. A row leaves `redis_sent` in
one transaction with this check: each group of its type has a mark, or a message in the store; a
group with neither gets a message (`_close_rows`). So whatever Redis forgets or repeats, an event is
handled by each group, and its effect happens once, because the mark commits with the effect.

So this module only has to detect a loss early, and to keep streams short:

                  find_loss: another run id, no epoch, a last entry that is older than
                  one that was added, a missing group (see Loss)
        ┌─────────┐ ────────────────────────────────────────────────> ┌────────────┐
        │ IN STEP │                                                   │ RECOVERING │
        └─────────┘ <──────────────────────────────────────────────── └────────────┘
         │       ^    open_gate: new epoch in Redis, then run id,        │  ^
         │       │    epoch and `recheck_to` in the store                │  │ any failure: Redis or
         └───────┘                                                       │  │ the store unavailable,
        close_finished, then trim, drop_groups,                          │  │ the primary replaced:
        move_entries_of_the_dead                                         └──┘ the next pass starts
                                                                              again
    RECOVERING, in this order; each step may be repeated:
      make_groups      each missing group, at the start of its stream
      close_gate       the store's run id = "": relays add nothing to this copy, and record
                       nothing in `redis_sent` that they added before
      publish_again    rows of `redis_sent` whose entry is no longer in its stream are closed
      open_gate        from here on this copy is valid. Entries that are in the streams now may have
                       been handled before: consumers look them up (`recheck_to`)

    IN STEP, each pass:
      close_finished   rows of `redis_sent` that every group has acknowledged are closed
      trim             those entries are removed from their streams
      drop_groups      removes groups that the store does not have, or has with another type
      move_entries_of_the_dead   pending entries of a process that is gone move to the store

What may fail, and what happens then:
    Redis loses data while RECOVERING        find_loss sees it in the next pass: no epoch, no group,
                                             or another run id than open_gate wrote
    a key is not a stream                    the events of this type go through the store
    an old primary still runs                its writes are fenced by its term: LeaseLost
    a relay added before the loss and        the row of the run id and epoch is locked by both:
    records it in `redis_sent` after it      recorded before close_gate, or refused and added again
    a loss is not detected                   the entry is closed as soon as every group has
                                             acknowledged later entries
    a group handled an entry without         its mark says so; a consumer that looks it up, or
    acknowledging it                         commits a second effect, finds the mark
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from cordata import clock, events
from cordata.broker.redis.pending import move_claims
from cordata.broker.redis.server import WRONG_TYPE, RedisServer, code_of
from cordata.broker.redis.state import ALL, StoredState, load, make_groups
from cordata.broker.redis.stream import Keys, id_of, position_of
from cordata.log import LogThrottle, fields, logger
from cordata.process import PROCESS_TOPIC
from cordata.store import CLAIMABLE_TOPIC, Store, Tx

log = logger("cordata.redis")

_DATA_LOST = fields(events.BROKER_DATA_LOST)

#: Rows of `redis_sent` in one transaction, and entries in one command to Redis.
_PAGE = 500
#: KEYS: the stream. ARGV: ids and event ids in turn. Returns the ids whose entry is not there.
_LOST = """
local lost = {}
for n = 1, #ARGV, 2 do
    local found = redis.pcall('XRANGE', KEYS[1], ARGV[n], ARGV[n])
    local entry = not found.err and found[1]
    if not entry or entry[2][2] ~= ARGV[n + 1] then lost[#lost + 1] = ARGV[n] end
end
return lost
"""


class Loss(StrEnum):
    """The kinds of data loss; the text is for the log."""

    NEW = "it is new"
    UNFINISHED = "a recovery did not finish"
    RESTARTED = "it was restarted or replaced"
    EMPTIED = "its data is gone"
    OLDER = "its last entry of {} is too old"
    NO_GROUP = "it has no group {}"


class _Look(NamedTuple):
    """The state of one stream in Redis."""

    #: Position of the last entry ever added.
    last: int
    #: Group -> up to where it has acknowledged everything.
    acknowledged: dict[str, int]
    #: Group -> the consumers that it has.
    consumers: dict[str, list[str]]


_MISSING = _Look(0, {}, {})


class Reconciler:
    """The reconciler of the primary; `store` writes with its term."""

    def __init__(self, store: Store, server: RedisServer, keys: Keys) -> None:
        self._store = store
        self._server = server
        self._keys = keys
        #: Groups in streams (type, group) that the last pass found and the store does not have.
        self._unknown: set[tuple[str, str]] = set()
        #: Types whose key is not a stream: their events go through the store.
        self._refused: set[str] = set()
        #: Of the reasons to recover: a recovery that Redis refuses is tried again and again.
        self._log_throttle = LogThrottle()

    @property
    def pause_s(self) -> float:
        """Seconds until a pass makes the next attempt to connect."""
        return self._server.pause_s

    def status(self) -> str:
        """For STATUS=: why Redis is unavailable; "" while it is available."""
        return f"Redis: {self._server.reason}" if self._server.reason else ""

    def log_refusal(self, error: ResponseError) -> None:
        """Log that Redis refuses a command of a pass."""
        self._server.log_refusal("to be reconciled", error)

    async def run_once(self, progress: Callable[[], None] = lambda: None) -> bool:
        """One pass. Returns whether it recovered, closed rows or moved entries.

        `progress`: called repeatedly during the pass, which may take minutes after a large loss, or
        if Redis is slow.

        Raises: BrokerUnavailable, ResponseError, StoreUnavailable, LeaseLost.
        """
        await self._server.connect()
        # The store first: all that it lists is in Redis then, unless Redis has lost it.
        state = await self._store.read(load)
        looks = await self._look(state)
        progress()
        if loss := await self._find_loss(state, looks):
            await self._recover(state, loss, progress)
            return True
        moved = await self._close_finished(state, looks, progress)
        await self._trim(state, looks)
        await self._drop_groups(state, looks)
        return await self._move_entries_of_the_dead(looks, progress) or moved

    async def _look(self, state: StoredState) -> dict[str, _Look]:
        """The state of all streams in Redis, by event type."""
        pipe = self._server.pipeline()
        pipe.smembers(self._keys.types)
        (known,) = await self._server.execute(pipe)
        types = set(state.types)
        if not isinstance(known, ResponseError):
            types |= {type.decode() for type in known}
        pipe = self._server.pipeline()
        for type in sorted(types):
            pipe.xinfo_stream(self._keys.of(type))
            pipe.xinfo_groups(self._keys.of(type))
        replies = await self._server.execute(pipe)
        self._refused = set()
        found: dict[str, _Look] = {}
        asked: list[tuple[str, Any]] = []
        pipe = self._server.pipeline()
        for type, facts, groups in zip(sorted(types), replies[::2], replies[1::2], strict=True):
            if isinstance(facts, ResponseError) or isinstance(groups, ResponseError):
                if isinstance(facts, ResponseError) and code_of(facts) == WRONG_TYPE:
                    self._refused.add(type)
                    self._server.log_refusal(self._keys.of(type), facts)
                continue
            last, newest = _ends(facts)
            look = found[type] = _Look(last, {}, {})
            for group in groups:
                name = group["name"].decode()
                delivered = position_of(group["last-delivered-id"])
                # Without unread entries it has got all, also those that were lost or trimmed.
                look.acknowledged[name] = last if delivered >= newest else delivered
                asked.append((type, name))
                pipe.xpending(self._keys.of(type), name)
                pipe.xinfo_consumers(self._keys.of(type), name)
        replies = await self._server.execute(pipe)
        for (type, name), pending, consumers in zip(
            asked, replies[::2], replies[1::2], strict=True
        ):
            look = found[type]
            if isinstance(pending, ResponseError) or isinstance(consumers, ResponseError):
                look.acknowledged.pop(name)
                continue
            if pending["pending"]:
                before = position_of(pending["min"]) - 1
                look.acknowledged[name] = min(look.acknowledged[name], before)
            look.consumers[name] = [one["name"].decode() for one in consumers]
        return found

    async def _find_loss(self, state: StoredState, looks: Mapping[str, _Look]) -> str:
        """The first sign that Redis lost data, compared with the store (see Loss); "" if none."""
        pipe = self._server.pipeline()
        pipe.get(self._keys.epoch)
        (epoch,) = await self._server.execute(pipe)
        if not state.run_id:
            return Loss.UNFINISHED if state.is_known else Loss.NEW
        if state.run_id != self._server.run_id:
            return Loss.RESTARTED
        if epoch != state.epoch.encode():
            return Loss.EMPTIED
        for type, position in state.last.items():
            if looks.get(type, _MISSING).last < position:
                return Loss.OLDER.format(type)
        for group, type in sorted(state.groups.items()):
            known = looks.get(type, _MISSING).acknowledged
            if group not in known and type not in self._refused:
                return Loss.NO_GROUP.format(group)
        return ""

    # IN STEP

    async def _close_finished(
        self, state: StoredState, looks: Mapping[str, _Look], progress: Callable[[], None]
    ) -> bool:
        """Close the rows that every group has acknowledged. Returns whether there were any."""
        moved = False
        for type in state.last:
            finished = _finished(state, looks, type)
            while rows := await self._finished_page(type, finished):
                moved = True
                progress()
                if count := await self._close_rows([(type, entry, id) for entry, id in rows]):
                    text = "republished %d messages of %s that Redis lost"
                    log.warning(text, count, type, extra=_DATA_LOST)
                if len(rows) < _PAGE:
                    break
        return moved

    async def _finished_page(self, type: str, finished: int) -> list[tuple[int, str]]:
        async def unit(tx: Tx) -> list[tuple[int, str]]:
            rows = await tx.fetch_all("redis.finished", type=type, entry=finished, limit=_PAGE)
            return [(row["entry"], row["event_id"]) for row in rows]

        return await self._store.read(unit)

    async def _close_rows(self, rows: Sequence[tuple[str, int, str]]) -> int:
        """Remove rows (type, entry, event id) of `redis_sent`.

        Each group that has not handled one of the events gets it in the store. Returns how many.
        """

        async def unit(tx: Tx) -> int:
            ids = json.dumps(sorted({event_id for _, _, event_id in rows}))
            count = await tx.execute("redis.give", ids=ids, now_us=tx.now_us)
            for type in sorted({type for type, _, _ in rows}):
                entries = [entry for of_type, entry, _ in rows if of_type == type]
                await tx.write("redis.forget", type=type, entries=json.dumps(entries))
            if count:
                tx.notify(CLAIMABLE_TOPIC)
            return count

        return await self._store.run(unit)

    async def _trim(self, state: StoredState, looks: Mapping[str, _Look]) -> None:
        """Remove entries that every group has acknowledged."""
        pipe = self._server.pipeline()
        for type in looks:
            finished = _finished(state, looks, type)
            pipe.xtrim(self._keys.of(type), minid=id_of(finished + 1), approximate=False)
        await self._server.execute(pipe)

    async def _drop_groups(self, state: StoredState, looks: Mapping[str, _Look]) -> None:
        """Remove groups that the store does not have, or has with another type.

        The latter get from the store the events of the former type that they have not handled.
        """
        before, self._unknown = (
            self._unknown,
            {
                (type, group)
                for type, look in looks.items()
                for group in look.acknowledged
                if state.groups.get(group) != type
            },
        )
        # Only those that two passes found: at the first one it may be about to be registered.
        gone = sorted(before & self._unknown)
        pipe = self._server.pipeline()
        for type, group in gone:
            if group in state.groups:
                await self._give_group(type, group)
            pipe.xgroup_destroy(self._keys.of(type), group)
        for type, look in looks.items():
            if not look.acknowledged and type not in state.types:
                pipe.delete(self._keys.of(type))
                pipe.srem(self._keys.types, type)
        await self._server.execute(pipe)
        if gone:
            log.info("removed from Redis: %s", ", ".join(f"{g} in {t}" for t, g in gone))

    async def _give_group(self, type: str, group: str) -> None:
        async def unit(tx: Tx) -> None:
            await tx.write("redis.give_group", type=type, group=group)
            tx.notify(CLAIMABLE_TOPIC)

        await self._store.run(unit)

    async def _move_entries_of_the_dead(
        self, looks: Mapping[str, _Look], progress: Callable[[], None]
    ) -> bool:
        """Move pending entries of processes that are gone to the store, where workers reclaim them.

        Returns whether there were any.
        """
        groups: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for type, look in looks.items():
            for group, names in look.consumers.items():
                for name in names:
                    groups[name][group] = type

        async def unit(tx: Tx) -> set[str]:
            return {row["id"] for row in await tx.fetch_all("process.all")}

        # After Redis was read: a process is in the table before it reads its first entry.
        living = await self._store.read(unit) if groups else set[str]()
        dead = groups.keys() - living
        for name in sorted(dead):
            progress()
            await move_claims(self._store, self._server, self._keys, groups[name], name=name)
        if dead:
            self._store.notify(PROCESS_TOPIC)  # workers reclaim them
        return bool(dead)

    # RECOVERING

    async def _recover(self, state: StoredState, loss: str, progress: Callable[[], None]) -> None:
        """Restore groups and events, then record this copy of Redis as the valid one."""
        begun = clock.monotonic()
        if state.is_known and self._log_throttle.is_due(loss):
            log.warning("Redis lost data, or may have: %s; recovering", loss, extra=_DATA_LOST)
        run_id, epoch = self._server.run_id, os.urandom(16).hex()
        groups = {g: t for g, t in state.groups.items() if t not in self._refused}
        await make_groups(self._server, self._keys, groups, start=ALL)
        await self._set_server("", "", 0)  # close_gate
        progress()
        count = await self._publish_again(progress)
        await self._open_gate(run_id, epoch, state)
        self._log_throttle.reset()
        if state.is_known:
            took_s = clock.monotonic() - begun
            if count:
                text = "republished %d messages that Redis lost, in %.1f s"
                log.warning(text, count, took_s, extra=_DATA_LOST)
            else:
                log.warning("Redis lost no event (%.1f s)", took_s, extra=_DATA_LOST)

    async def _publish_again(self, progress: Callable[[], None]) -> int:
        """Close the rows of entries that are gone. Returns the number of messages added."""
        count, at = 0, ("", 0)
        while True:

            async def unit(tx: Tx, after: tuple[str, int] = at) -> list[tuple[str, int, str]]:
                type, entry = after
                rows = await tx.fetch_all("redis.page", type=type, entry=entry, limit=_PAGE)
                return [(row["type"], row["entry"], row["event_id"]) for row in rows]

            page = await self._store.read(unit)
            progress()
            if lost := await self._lost(page):
                count += await self._close_rows(lost)
                progress()
            if len(page) < _PAGE:
                return count
            at = page[-1][:2]

    async def _lost(self, page: Sequence[tuple[str, int, str]]) -> list[tuple[str, int, str]]:
        """The rows whose entry is no longer in its stream."""
        by_type: dict[str, list[tuple[str, int, str]]] = {}
        for row in page:
            by_type.setdefault(row[0], []).append(row)
        pipe = self._server.pipeline()
        for type, rows in by_type.items():
            words = [word for _, entry, event_id in rows for word in (id_of(entry), event_id)]
            pipe.eval(_LOST, 1, self._keys.of(type), *words)
        lost: list[tuple[str, int, str]] = []
        for rows, found in zip(by_type.values(), await self._execute(pipe), strict=True):
            gone = {position_of(entry_id) for entry_id in found}
            lost += [row for row in rows if row[1] in gone]
        return lost

    async def _open_gate(self, run_id: str, epoch: str, state: StoredState) -> None:
        looks = await self._look(state)
        pipe = self._server.pipeline()
        pipe.set(self._keys.epoch, epoch)
        await self._execute(pipe)
        recheck_to = max((look.last for look in looks.values()), default=0)
        await self._set_server(run_id, epoch, recheck_to)

    async def _set_server(self, run_id: str, epoch: str, recheck_to: int) -> None:
        async def unit(tx: Tx) -> None:
            await tx.write("redis.set_server", run_id=run_id, epoch=epoch, recheck_to=recheck_to)
            if run_id:
                tx.notify(CLAIMABLE_TOPIC)  # relays and consumers may go on

        await self._store.run(unit)

    async def _execute(self, pipe: Pipeline) -> list[Any]:
        """As RedisServer.execute. Raises: ResponseError when a command is refused."""
        replies = await self._server.execute(pipe)
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        return replies

    def close(self) -> None:
        """Close the connection."""
        self._server.close()


def _ends(facts: Mapping[str, Any]) -> tuple[int, int]:
    """Positions of the last entry ever added, and of the last one that still exists (0: none)."""
    entry = facts["last-entry"]
    return position_of(facts["last-generated-id"]), position_of(entry[0]) if entry else 0


def _finished(state: StoredState, looks: Mapping[str, _Look], type: str) -> int:
    """Up to where every group that reads a stream has acknowledged everything.

    A group whose type has changed counts until `_drop_groups` has given it the rest.
    """
    look = looks.get(type, _MISSING)
    groups = {group for group, of_type in state.groups.items() if of_type == type}
    groups |= look.acknowledged.keys() & state.groups
    return min((look.acknowledged.get(group, 0) for group in groups), default=look.last)
