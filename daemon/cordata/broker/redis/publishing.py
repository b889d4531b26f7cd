"""The relay's way: claimed in the store, added to streams in one round trip, marked in the store.

Between the claim and the mark a relay may die, Redis may vanish, or be another one by the time the
mark is written. Then the entries are added again later, under the same event ids: at least once.
Entries are only added to a Redis whose data the primary has looked through (its run id and epoch
are in the store, the epoch is watched): so ids never step back behind what groups have handled.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from cordata import clock, events
from cordata.broker import claim, key
from cordata.broker.claim import Entry, Refusal
from cordata.broker.message import Relayed
from cordata.broker.publish import Unhandled
from cordata.broker.redis.complaint import Complaints, Strangers
from cordata.broker.redis.connection import Command, Connection, Refused
from cordata.broker.redis.dial import Dialer, Reach
from cordata.broker.redis.hands import entry_of
from cordata.broker.redis.link import Link
from cordata.broker.redis.marking import Marking
from cordata.broker.redis.naming import Keys, Stream, level_of, position_of
from cordata.broker.redis.registry import REDIS_TOPIC, Knowledge, Mark, load, set_up
from cordata.broker.settle import STREAM_TOPIC
from cordata.core.outbox import BACKFILL
from cordata.core.retry import next_delay_s
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.log import fields, logger
from cordata.store import Store, Tx

log = logger("cordata.redis")

#: An entry that Redis does not take, though it takes others, is dead after so many attempts.
_MAX_ATTEMPTS = 20
_DEAD_HINT = "`cordata outbox show` says why, `... retry` tries again"
#: First and longest pause while Redis answers, but takes nothing.
_FIRST_S, _LONGEST_S = 0.5, 10.0
#: Claims of one pass, in batches: one that fills the first goes on with larger ones; but the
#: backfill gets one, so that what is live never waits for it long.
_ROUNDS = (1, 5, 5, 5, 5)


class _Batch(NamedTuple):
    #: To be added to a stream.
    entries: list[Entry]
    #: Groups that get entries of a type from a stream.
    groups: dict[str, list[str]]
    #: Published by the claim alone: nobody reads them in a stream.
    published: int
    #: There may be more.
    full: bool
    #: Some are of the backfill, so nothing live is left.
    backfill: bool


class Publisher:
    """Of one process."""

    def __init__(
        self,
        store: Store,
        dialer: Dialer,
        reach: Reach,
        keys: Keys,
        *,
        owner: str,
        claim_timeout_s: float,
    ) -> None:
        #: Why Redis takes nothing, though it answers; "" when it does.
        self.trouble = ""
        self._store = store
        self._keys = keys
        self._owner = owner
        self._timeout_s = dialer.timeout_s
        self._watch: list[Command] = [("WATCH", keys.epoch), ("GET", keys.epoch)]
        self._claim_timeout_us = int(claim_timeout_s * 1e6)
        self._link = Link(dialer, reach)
        #: The connection whose server was compared with what the store knows, and that knowledge.
        self._checked: Connection | None = None
        self._known = Knowledge()
        self._unhandled = Unhandled({})
        #: Groups that exist in Redis, each with its mark.
        self._set_up: set[Mark] = set()
        self._marking = Marking(store, owner=owner)
        #: Whether the store may hold claims of this process that it does not know of.
        self._in_doubt = False
        self._refusals = 0
        self._next_deadline = 0.0
        #: Entries that were given up.
        self.given_up_count = 0
        self._complaints = Complaints()
        self.strangers = Strangers(self._complaints)

    async def relay(self, limit: int) -> Relayed:
        """Publish what is due. Raises: BrokerUnavailable, StoreUnavailable."""
        await self._marking.run_owed()  # what the last pass could not mark
        if self._in_doubt:  # nothing else is in hand between two passes
            await self._marking.run(partial(claim.take_back, dead=[self._owner]))
            self._in_doubt = False
        try:
            return await self._relay(limit)
        except StoreUnavailable:  # the answer to a claim may be what was lost
            self._in_doubt = True
            raise

    async def _relay(self, limit: int) -> Relayed:
        connection = await self._ready()
        count = 0
        for factor in _ROUNDS:
            # And marks what the round before has added.
            batch = await self._marking.run(partial(self._claim_in, limit=limit * factor))
            count += batch.published + await self._publish(connection, batch)
            if not batch.full or batch.backfill:
                break
        await self._marking.run_owed()
        self._refusals = 0
        self.trouble = ""
        return Relayed(published=count, next_at=await self._next_at(), backfill=batch.backfill)

    async def _next_at(self) -> int | None:
        async def unit(tx: Tx) -> int | None:
            levels = await tx.fetch_all("outbox.levels")
            return min((level["next_at"] for level in levels), default=None)

        return await self._store.read(unit)

    async def _ready(self) -> Connection:
        """A connection to the Redis that the store knows of; its epoch is watched from now on."""
        if clock.monotonic() < self._next_deadline:
            raise BrokerUnavailable(f"Redis: {self.trouble}")
        connection = await self._link.ready()
        if connection is self._checked:
            return connection
        try:
            _, epoch = await connection.run(*self._watch, timeout_s=self._timeout_s)
        except Refused as error:
            raise self._paused(str(error)) from error
        known = await self._store.read(load)
        if known.run_id != connection.run_id or not _is(epoch, known.epoch):
            self.strangers.met(known.run_id, connection.run_id)
            raise self._unknown()
        self.strangers.made_known()
        self._checked, self._known = connection, known
        self._set_up = set(known.marks)
        return connection

    def _unknown(self) -> BrokerUnavailable:
        self._store.notify(REDIS_TOPIC)
        self.trouble = "its data is new to the primary, which has to look through it first"
        return BrokerUnavailable(f"Redis: {self.trouble}")

    async def _claim_in(self, tx: Tx, limit: int) -> _Batch:
        """For a unit: what is due is this process'; groups that want key order get theirs now."""
        entries = await claim.claim(
            tx, owner=self._owner, limit=limit, claim_timeout_us=self._claim_timeout_us
        )
        if not entries:
            return _Batch([], {}, 0, full=False, backfill=False)
        streamed: dict[str, list[str]] = {}
        keyed: set[str] = set()
        for row in await tx.fetch_all("redis.groups"):
            if row["keyed"]:
                keyed.add(row["type"])
            else:
                streamed.setdefault(row["type"], []).append(row["group"])
        types = (entry.type for entry in entries)
        self._unhandled.look({type_: type_ in keyed or type_ in streamed for type_ in types})
        if ids := [entry.id for entry in entries if entry.type in keyed]:
            await tx.write("redis.fan_out", ids=json.dumps(ids), now_us=tx.now_us)
            await key.take_places(tx, json.dumps(ids))
            tx.notify(STREAM_TOPIC)
        rest = [entry.id for entry in entries if entry.type not in streamed]
        if rest:
            await claim.mark_published(tx, rest)
        wanted = [entry for entry in entries if entry.type in streamed]
        backfill = any(entry.lane == BACKFILL for entry in entries)
        full = len(entries) >= limit
        return _Batch(wanted, streamed, len(rest), full=full, backfill=backfill)

    async def _publish(self, connection: Connection, batch: _Batch) -> int:
        """Add a claimed batch. What could not be added goes back. Returns how many were."""
        if not batch.entries:
            return 0
        try:
            replies = await self._add(connection, batch)
            if replies is None:  # the primary has looked through it meanwhile, or has to
                replies = await self._add(await self._ready(), batch)
            if replies is None:
                raise self._unknown()
        except Refused as error:
            await self._give_back(batch.entries)
            raise self._paused(str(error)) from error
        except (BrokerUnavailable, StoreUnavailable):
            await self._give_back(batch.entries, doubtful=True)
            raise
        refused: list[tuple[Entry, Refused]] = []
        added: list[list[int]] = []
        for entry, reply in zip(batch.entries, replies, strict=True):
            if isinstance(reply, Refused):
                refused.append((entry, reply))
                self._complaints.refused(self._keys.of(_stream_of(entry)), reply)
            else:
                added.append([entry.id, position_of(reply)])
        self._marking.add(self._known, added)
        if refused:
            dead = await self._marking.run(lambda tx: self._settle(tx, refused))
            self.given_up_count += len(dead)
            for event_id in dead:
                log.error("event %s is dead: Redis refuses it (%s)", event_id, _DEAD_HINT)
        return len(batch.entries) - len(refused)

    async def _give_back(self, entries: Sequence[Entry], *, doubtful: bool = False) -> None:
        """`doubtful`: Redis may have them."""
        ids = [entry.id for entry in entries]

        async def unit(tx: Tx) -> None:
            if doubtful:
                await tx.write("redis.doubt", ids=json.dumps(ids), owner=self._owner)
            await claim.give_back(tx, ids, owner=self._owner)

        try:
            await self._marking.run(unit)
        except StoreUnavailable as error:
            self._in_doubt = True
            log.warning("%d outbox entries are given back later: %s", len(ids), error)

    def _paused(self, trouble: str) -> BrokerUnavailable:
        """Redis answers, but takes nothing: what was given back is not to be claimed at once."""
        if not self.trouble:
            log.error("Redis takes no events: %s", trouble, extra=fields(events.BROKER_FAILED))
        self.trouble = trouble
        self._refusals += 1
        pause_s = _pause_s(self._refusals, longest_s=_LONGEST_S)
        self._next_deadline = clock.monotonic() + pause_s
        return BrokerUnavailable(f"Redis: {trouble}")

    async def _set_groups_up(
        self, connection: Connection, batch: _Batch
    ) -> Mapping[Stream, Refused]:
        """Before the first entry of a stream: every group that is to get it exists.

        Returns what is no stream at all.
        """
        streams = set(map(_stream_of, batch.entries))
        marks = [Mark(one, group) for one in streams for group in batch.groups[one.type]]
        missing = [mark for mark in marks if mark not in self._set_up]
        strange: dict[Stream, Refused] = {}
        if missing:
            made = await set_up(
                self._store,
                self._keys,
                connection,
                missing,
                self._known.marks,
                timeout_s=self._timeout_s,
            )
            self._set_up.update(mark for mark in missing if mark not in made.strange)
            strange = {mark.stream: error for mark, error in made.strange.items()}
        return strange

    async def _add(self, connection: Connection, batch: _Batch) -> list[Any] | None:
        """Ids or refusals; None: the data is not the one that was watched, and nothing was added.

        One transaction of Redis, and the watch for the next one, in one round trip.
        """
        strange = await self._set_groups_up(connection, batch)
        fit = [entry for entry in batch.entries if _stream_of(entry) not in strange]
        commands = [("MULTI",), *map(self._command, fit), ("EXEC",), *self._watch]
        *queued, added, _, epoch = await connection.call(*commands, timeout_s=self._timeout_s)
        if added is None or not _is(epoch, self._known.epoch):
            self._checked = None
        if isinstance(added, Refused):  # because something was not even queued
            raise next((reply for reply in queued if isinstance(reply, Refused)), added)
        if added is None or not strange:
            found: list[Any] | None = added
            return found
        ids = iter(added)
        streams = map(_stream_of, batch.entries)
        return [strange[one] if one in strange else next(ids) for one in streams]

    def _command(self, entry: Entry) -> Command:
        return ("XADD", self._keys.of(_stream_of(entry)), "*", *entry_of(entry))

    async def _settle(self, tx: Tx, refused: Sequence[tuple[Entry, Refused]]) -> list[str]:
        """For a unit: what Redis did not take though it took others. Returns what is dead now."""
        refusals = [
            Refusal(
                id=entry.id,
                next_at=tx.now_us + int(_pause_s(entry.attempts + 1, longest_s=300.0) * 1e6),
                error=str(error)[:200],
            )
            for entry, error in refused
        ]
        return await claim.put_back(tx, refusals, owner=self._owner, max_attempts=_MAX_ATTEMPTS)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def _stream_of(entry: Entry) -> Stream:
    return Stream(entry.type, level_of(entry.lane, entry.priority))


def _is(reply: object, epoch: str) -> bool:
    return reply == epoch.encode()


def _pause_s(attempt: int, *, longest_s: float) -> float:
    share = 0.5 + 0.5 * random.random()
    return next_delay_s(attempt, share, first_s=_FIRST_S, longest_s=longest_s)
