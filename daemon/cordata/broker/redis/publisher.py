"""The publisher: claims outbox entries in the store, adds them to streams, marks them as published.

    outbox ──claim──> this process' ──append──> stream ──mark──> published, with its position
      ^                 │     │                   │
      │                 │     └─ refused: again later, dead after 20 times
      └──given back─────┘        (its relay dies here: the claim expires, and the entry is added
         as `again` if it may     again, marked `again`)
         have been added

Between the claim and the mark a relay may die, Redis may vanish, or be another one by the time the
mark is written. Then the entries are added again later, under the same event ids: at least once.

`append` is one script: it adds nothing unless this is the copy of the data that the store knows, by
run id and epoch (see reconciler.py). So ids never fall behind those that groups have handled. The
marks go with whatever unit comes next, so they cost no commit of their own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from redis.exceptions import ResponseError

from cordata import clock, events
from cordata.broker import claim, key
from cordata.broker.claim import Entry, Refusal
from cordata.broker.message import Relayed
from cordata.broker.publish import Unhandled
from cordata.broker.redis.refusal_log import PRIMARY_S, WRONG_TYPE, RefusalLog, UnknownServer
from cordata.broker.redis.server import RedisServer, describe
from cordata.broker.redis.state import REDIS_TOPIC, StoredState, StreamGroup, load, make_groups
from cordata.broker.redis.stream import FIELD, Keys, Stream, encode, level_of, position_of
from cordata.broker.settle import STREAM_TOPIC
from cordata.core.outbox import BACKFILL
from cordata.core.retry import next_delay_s
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.log import fields, logger
from cordata.store import Store, Tx, Unit

log = logger("cordata.redis")
T = TypeVar("T")

#: An entry that Redis refuses, though it takes others, is dead after so many attempts.
_MAX_ATTEMPTS = 20
_DEAD_HINT = "`cordata outbox show` says why, `... retry` tries again"
#: First and longest pause while Redis is available, but takes nothing.
_FIRST_S, _LONGEST_S = 0.5, 10.0
#: Claims of one pass, in batches: one that fills the first goes on with larger ones; but the
#: backfill gets one, so that what is live never waits for it long.
_ROUNDS = (1, 5, 5, 5, 5)
#: Entries that the wake stream keeps.
_WAKES = 100
#: KEYS: epoch, wake stream, streams. ARGV: run id, epoch, number of types, types, then the number
#: of the stream and the document of each entry. Returns the ids, false where the key is no stream;
#: nil, and nothing was added, when this is another copy of the data.
_APPEND = """
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if run_id ~= ARGV[1] or redis.call('GET', KEYS[1]) ~= ARGV[2] then return nil end
local ids, types = {}, tonumber(ARGV[3])
for n = types + 4, #ARGV, 2 do
    local id = redis.pcall('XADD', KEYS[tonumber(ARGV[n])], '*', 'event', ARGV[n + 1])
    if type(id) == 'table' and id.err then
        if not string.find(id.err, 'WRONGTYPE', 1, true) then return id end
        id = false
    end
    ids[#ids + 1] = id
end
local wake = {}
for n = 4, types + 3 do wake[#wake + 1] = ARGV[n]; wake[#wake + 1] = '1' end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', WAKES, '*', unpack(wake))
return ids
""".replace("WAKES", str(_WAKES)).replace("'event'", repr(FIELD.decode()))


class _Batch(NamedTuple):
    """What one claim brought."""

    #: To be added to a stream.
    entries: list[Entry]
    #: Groups that get entries of a type from a stream.
    groups: dict[str, list[str]]
    #: Published by the claim alone: nobody reads them in a stream.
    published: int
    #: There may be more.
    is_full: bool
    #: Some are of the backfill, so nothing live is left.
    is_backfill: bool


class _Marks:
    """What was added to streams and is not yet marked in the store as published."""

    def __init__(self, store: Store, *, owner: str) -> None:
        self._store = store
        self._owner = owner
        #: The state in which they were added, and [id, position] of each.
        self._added: list[tuple[StoredState, list[list[int]]]] = []

    def add(self, state: StoredState, entries: list[list[int]]) -> None:
        """These ([id, position]) were added to the Redis of `state`."""
        if entries:
            self._added.append((state, entries))

    async def run(self, unit: Unit[T]) -> T:
        """Run a unit that also marks. What fails is marked with the next one."""
        added = tuple(self._added)

        async def marking(tx: Tx) -> T:
            if added:
                await self._mark(tx, added)
            value = await unit(tx)
            # A claim or mark that a crash of the server takes back is made again: the entry then
            # comes to Redis twice, and the mark as handled keeps its effect single.
            await tx.write("commit.unsynced")
            return value

        result = await self._store.run(marking)
        self._added = [one for one in self._added if not any(one is other for other in added)]
        return result

    async def flush(self) -> None:
        """Mark, if there is anything to mark."""
        if self._added:
            await self.run(_nothing)

    async def _mark(self, tx: Tx, added: Sequence[tuple[StoredState, list[list[int]]]]) -> None:
        """For a unit: what was added, unless it was to another copy of the data: that goes back.

        The row is locked until the commit: a primary that looks for what is lost changes it first,
        so it sees everything that was marked before.
        """
        server = await tx.fetch_one("redis.hold_server")
        current = (server["run_id"], server["epoch"]) if server else None
        good: list[list[int]] = []
        lost: list[int] = []
        for state, entries in added:
            if current == (state.run_id, state.epoch):
                good += entries
            else:
                lost += [id for id, _ in entries]
        if good:
            marks = json.dumps(good)
            await tx.write("redis.mark_published", entries=marks, now_us=tx.now_us)
        if lost:
            await tx.write("redis.doubt", ids=json.dumps(lost), owner=self._owner)
            await claim.give_back(tx, lost, owner=self._owner)


async def _nothing(tx: Tx) -> None:
    """A unit that only marks."""


class Publisher:
    """Of one process; `owner` is its id as a relay."""

    def __init__(
        self,
        store: Store,
        server: RedisServer,
        keys: Keys,
        *,
        owner: str,
        claim_timeout_s: float,
        patience_s: float = PRIMARY_S,
    ) -> None:
        """`patience_s`: then it is logged that no primary has examined this Redis."""
        #: Why Redis, though it is available, takes nothing; "" when it does.
        self.trouble = ""
        #: Entries that were given up.
        self.given_up_count = 0
        self._store = store
        self._server = server
        self._keys = keys
        self._owner = owner
        self._claim_timeout_us = int(claim_timeout_s * 1e6)
        self._state = StoredState()
        self._unhandled = Unhandled({})
        #: Groups that exist in Redis, each with its committed position.
        self._made: set[StreamGroup] = set()
        self._marks = _Marks(store, owner=owner)
        #: Whether the store may hold claims of this process that it does not know of.
        self._has_orphans = False
        self._refusals = 0
        self._next_deadline = 0.0
        self._refusal_log = RefusalLog()
        self._unknown = UnknownServer(self._refusal_log, patience_s=patience_s)

    async def relay(self, limit: int) -> Relayed:
        """Publish what is due. Raises: BrokerUnavailable, StoreUnavailable."""
        await self._marks.flush()  # what the last pass could not mark
        if self._has_orphans:  # no other claim exists between two passes
            await self._marks.run(partial(claim.take_back, dead=[self._owner]))
            self._has_orphans = False
        try:
            return await self._relay(limit)
        except StoreUnavailable:  # the answer to a claim may be what was lost
            self._has_orphans = True
            raise

    async def _relay(self, limit: int) -> Relayed:
        if clock.monotonic() < self._next_deadline:
            raise BrokerUnavailable(f"Redis: {self.trouble}")
        await self._server.connect()
        if self._state.run_id != self._server.run_id:
            await self._load_state()
        count = 0
        for factor in _ROUNDS:
            # And marks what the round before has added.
            batch = await self._marks.run(partial(self._claim_in, limit=limit * factor))
            count += batch.published + await self._publish(batch)
            if not batch.is_full or batch.is_backfill:
                break
        await self._marks.flush()
        self._refusals = 0
        self.trouble = ""
        return Relayed(published=count, next_at=await self._next_at(), backfill=batch.is_backfill)

    async def _next_at(self) -> int | None:
        async def unit(tx: Tx) -> int | None:
            levels = await tx.fetch_all("outbox.levels")
            return min((level["next_at"] for level in levels), default=None)

        return await self._store.read(unit)

    async def _load_state(self) -> None:
        """See which copy of the data is the good one. Raises: BrokerUnavailable: not this one."""
        state = await self._store.read(load)
        if state.run_id != self._server.run_id:
            self._unknown.seen(state.run_id, self._server.run_id)
            raise self._not_recovered()
        self._unknown.known()
        self._state, self._made = state, set(state.committed)

    def _not_recovered(self) -> BrokerUnavailable:
        self._store.notify(REDIS_TOPIC)
        self.trouble = "its data is new to the primary, which has to look through it first"
        return BrokerUnavailable(f"Redis: {self.trouble}")

    async def _claim_in(self, tx: Tx, limit: int) -> _Batch:
        """For a unit: what is due is this process'; groups that want key order get theirs now."""
        entries = await claim.claim(
            tx, owner=self._owner, limit=limit, claim_timeout_us=self._claim_timeout_us
        )
        if not entries:
            return _Batch([], {}, 0, is_full=False, is_backfill=False)
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
        is_backfill = any(entry.lane == BACKFILL for entry in entries)
        is_full = len(entries) >= limit
        return _Batch(wanted, streamed, len(rest), is_full=is_full, is_backfill=is_backfill)

    async def _publish(self, batch: _Batch) -> int:
        """Add a claimed batch. What could not be added goes back. Returns how many were."""
        if not batch.entries:
            return 0
        try:
            ids = await self._append(batch)
            if ids is None:  # the primary has recovered it meanwhile, or has to
                await self._load_state()
                ids = await self._append(batch)
            if ids is None:
                raise self._not_recovered()
        except ResponseError as error:
            await self._give_back(batch.entries)
            raise self._paused(describe(error)) from error
        except (BrokerUnavailable, StoreUnavailable):
            await self._give_back(batch.entries)
            raise
        refused: list[Entry] = []
        added: list[list[int]] = []
        for entry, entry_id in zip(batch.entries, ids, strict=True):
            if entry_id is None:
                refused.append(entry)
            else:
                added.append([entry.id, position_of(entry_id)])
        self._marks.add(self._state, added)
        if refused:
            await self._put_back(refused)
        return len(added)

    async def _append(self, batch: _Batch) -> list[bytes | None] | None:
        """Ids, None where the key is no stream; None: the data is not what the store knows.

        Before the first entry of a stream every group that is to get it exists.
        Raises: ResponseError, BrokerUnavailable, StoreUnavailable.
        """
        streams = list({_stream_of(entry) for entry in batch.entries})
        groups = [StreamGroup(one, group) for one in streams for group in batch.groups[one.type]]
        if missing := [pair for pair in groups if pair not in self._made]:
            committed = self._state.committed
            made = await make_groups(self._store, self._keys, self._server, missing, committed)
            self._made.update(pair for pair in missing if pair not in made.refused)
        keys = [self._keys.epoch, self._keys.wake, *map(self._keys.of, streams)]
        number = {stream: n for n, stream in enumerate(streams, start=3)}
        types = sorted({stream.type for stream in streams})
        words: list[Any] = [self._state.run_id, self._state.epoch, len(types), *types]
        for entry in batch.entries:
            words += (number[_stream_of(entry)], encode(entry))
        pipe = self._server.pipeline()
        pipe.eval(_APPEND, len(keys), *keys, *words)
        (reply,) = await self._server.execute(pipe)
        if isinstance(reply, ResponseError):
            raise reply
        ids: list[bytes | None] | None = reply
        return ids

    async def _give_back(self, entries: Sequence[Entry]) -> None:
        """Redis may have them: they are added again as such."""
        ids = [entry.id for entry in entries]

        async def unit(tx: Tx) -> None:
            await tx.write("redis.doubt", ids=json.dumps(ids), owner=self._owner)
            await claim.give_back(tx, ids, owner=self._owner)

        try:
            await self._marks.run(unit)
        except StoreUnavailable as error:
            self._has_orphans = True
            log.warning("%d outbox entries are given back later: %s", len(ids), error)

    def _paused(self, trouble: str) -> BrokerUnavailable:
        """Redis is available, but takes nothing: what was given back is not claimed at once."""
        if not self.trouble:
            log.error("Redis takes no events: %s", trouble, extra=fields(events.BROKER_FAILED))
        self.trouble = trouble
        self._refusals += 1
        self._next_deadline = clock.monotonic() + _pause_s(self._refusals, longest_s=_LONGEST_S)
        return BrokerUnavailable(f"Redis: {trouble}")

    async def _put_back(self, refused: Sequence[Entry]) -> None:
        """What Redis refused, though it took others: again later, or dead."""
        for stream in {_stream_of(entry) for entry in refused}:
            error = ResponseError(f"{WRONG_TYPE} it is no stream")
            self._refusal_log.refused(self._keys.of(stream), error)

        async def unit(tx: Tx) -> list[str]:
            refusals = [
                Refusal(
                    id=entry.id,
                    next_at=tx.now_us + int(_pause_s(entry.attempts + 1, longest_s=300.0) * 1e6),
                    error=f"{WRONG_TYPE} {self._keys.of(_stream_of(entry))} is no stream"[:200],
                )
                for entry in refused
            ]
            return await claim.put_back(tx, refusals, owner=self._owner, max_attempts=_MAX_ATTEMPTS)

        dead = await self._marks.run(unit)
        self.given_up_count += len(dead)
        for event_id in dead:
            log.error("event %s is dead: Redis refuses it (%s)", event_id, _DEAD_HINT)


def _stream_of(entry: Entry) -> Stream:
    return Stream(entry.type, level_of(entry.lane, entry.priority))


def _pause_s(attempt: int, *, longest_s: float) -> float:
    share = 0.5 + 0.5 * random.random()
    return next_delay_s(attempt, share, first_s=_FIRST_S, longest_s=longest_s)
