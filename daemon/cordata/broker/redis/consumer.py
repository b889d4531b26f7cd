"""The consumer: reads streams for this process' groups, acknowledges, and waits for new entries.

The life of an entry:

    read ──> handler ──handled──> acknowledged ──in another's name by now──> marked as handled
      │         │  ^                  ^                                       (in the store)
      │         │  └──────────────┐   │
      │         └─failed, given back──┼─> moved to the store ─> acknowledged
      │                           │   │
      └─may have been handled ─> doubtful ──it was: the store says so

It is doubtful when Redis lost data (its position is one that was used before, or this Redis is not
the one that the store knows), when a relay has perhaps added it twice, or when the answer to the
read was lost, so that it is pending in our name and was never seen here.

One exchange is one round trip: acknowledgements, then a read of all groups that want something. It
is skipped while nothing can have come: a group is empty from a read that brought less than was
wanted until the wake stream says that something was added for its type. Only the wake stream is
waited for, in a blocking XREAD that claims nothing, so stopping needs no care; each time this wait
ends without an answer all groups are read once, whatever was missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from cordata.broker.message import NOTHING, PERHAPS, Due, Held, Message, Outcome, Want, back
from cordata.broker.redis import fallback, pending
from cordata.broker.redis.in_flight import InFlight
from cordata.broker.redis.refusal_log import WRONG_TYPE, RefusalLog
from cordata.broker.redis.server import RedisServer, code_of
from cordata.broker.redis.state import GroupSetup, StoredState, StreamGroup, load
from cordata.broker.redis.stream import LEVELS, Delivery, Keys, Stream, decode, position_of
from cordata.broker.redis.stream import unreadable as unreadable_entry
from cordata.core.delivery import Verdict
from cordata.core.outbox import BACKFILL, LIVE
from cordata.errors import BrokerUnavailable, StoreUnavailable, TransientError
from cordata.log import logger
from cordata.store import Store

log = logger("cordata.redis")

#: Entries of one read of what is pending in our name.
_PAGE = 500


class _Owned:
    """What one owner has read. In production there is one: this process."""

    def __init__(self) -> None:
        self.in_flight = InFlight()
        #: Pending in its name, and perhaps handled already: looked up before a handler gets it.
        self.doubtful: list[Delivery] = []
        #: Handled, and by now in another's name, who may handle it, too: to be marked as handled.
        self.unmarked: list[Delivery] = []
        #: An answer was lost: entries may be pending in its name that were never seen here.
        self.is_incomplete = False
        #: Of the server's connections: what came before was made up for.
        self.generation = 0


class Consumer:
    """Of one process. Methods that take `owner` are about what is in that name."""

    def __init__(
        self, store: Store, server: RedisServer, keys: Keys, *, owner: str, claim_timeout_s: float
    ) -> None:
        #: What the store knows of Redis.
        self.state = StoredState()
        self._store = store
        self._server = server
        self._keys = keys
        self._owner = owner
        self._claim_timeout_s = claim_timeout_s
        self._groups = GroupSetup(store, keys, server)
        self._refusal_log = RefusalLog()
        self._owned: dict[str, _Owned] = {}
        self._is_listening = False
        self._is_stopping = False
        #: Group -> how often something may have come for it.
        self._wakes = Counter[str]()
        #: Group and lane -> that count when it was found empty.
        self._empty_at: dict[tuple[str, str], int] = {}

    def register(self, groups: Mapping[str, str]) -> None:
        """These read streams: group -> event type."""
        self._groups.register(groups)

    @property
    def trouble(self) -> str:
        """Why some groups cannot be read though Redis is available; "" when it does."""
        return self._groups.trouble

    def _of(self, owner: str) -> _Owned:
        return self._owned.setdefault(owner, _Owned())

    async def load_state(self) -> None:
        """Read what the store knows of Redis. Raises: StoreUnavailable."""
        before, self.state = self.state, await self._store.read(load)
        is_new = bool(self.state.committed.keys() - before.committed.keys())
        if is_new or (self.state.run_id, self.state.epoch) != (before.run_id, before.epoch):
            self._wake(None)

    # Waiting for new entries

    async def listen(self, ring: Callable[[], None]) -> None:
        """Until cancelled: `ring` when there may be something to read, or Redis is back."""
        self._is_listening = True
        while True:
            try:
                await self._server.connect()
                pipe = self._server.pipeline()
                pipe.xrevrange(self._keys.wake, count=1)
                (newest,) = await self._server.execute(pipe)
                if isinstance(newest, ResponseError):
                    raise newest
                after = newest[0][0] if newest else b"0"
                self._wake(None)
                ring()
                while entries := await self._server.wait_for_entries(self._keys.wake, after):
                    after = entries[-1][0]
                    self._wake({type for _, fields in entries for type in fields})
                    ring()
            except BrokerUnavailable:
                self._of(self._owner).is_incomplete = True
                await asyncio.sleep(max(self._server.pause_s, 0.01))
            except ResponseError as error:
                self._refusal_log.refused(self._keys.wake, error)
                await asyncio.sleep(1.0)

    def _wake(self, types: Collection[bytes] | None) -> None:
        """Something may have come for the groups of these types; None: of all."""
        for group, type in self._groups.types.items():
            streams = self.state.streams_of(group)
            if types is None or any(
                one.encode() in types for one in (type, *(stream.type for stream in streams))
            ):
                self._wakes[group] += 1

    def due_of(self, owner: str, group: str) -> Due:
        """PERHAPS for lanes in which an exchange may bring something for a group."""
        owned = self._of(owner)
        if any(one.message.group == group for one in owned.doubtful):
            return Due(PERHAPS, PERHAPS)
        if not self._may_read(group):
            return NOTHING
        if not self._is_listening or not owned.in_flight.is_settled:
            return Due(PERHAPS, PERHAPS)
        return Due(*(self._may_have(group, lane) for lane in (LIVE, BACKFILL)))

    def _may_read(self, group: str) -> bool:
        if group not in self._groups.types or self._groups.is_paused(group):
            return False
        if self._is_listening and not self._server.is_available:
            return False
        return bool(self.state.streams_of(group)) or self._groups.is_due()

    def _may_have(self, group: str, lane: str) -> int | None:
        if lane == BACKFILL and not any(
            stream.level == BACKFILL for stream in self.state.streams_of(group)
        ):
            return None
        return None if self._empty_at.get((group, lane)) == self._wakes[group] else PERHAPS

    # Reading and acknowledging

    async def exchange(self, owner: str, wanted: Mapping[str, Want]) -> list[Message]:
        """Acknowledge, and bring what is wanted. Raises nothing: what is away comes later."""
        owned = self._of(owner)
        found: list[Delivery] = []
        try:
            if not self._is_listening or self._server.is_available:
                await self._prepare(owner, wanted)
                await self._read(owner, wanted, found)
        except TransientError as error:
            log.debug("streams are not read: %s", error)
        try:
            await self._mark_unmarked(owned)
            found += await self._sift(owned, wanted)
        except TransientError as error:
            log.debug("what was delivered before is not looked up: %s", error)
        for name in {owner, self._owner}:
            await self._acknowledge(name)
        return [delivery.message for delivery in found]

    async def _prepare(self, owner: str, wanted: Collection[str]) -> None:
        """The groups exist, and answers that were lost are made up for."""
        owned = self._of(owner)
        await self._server.connect()
        if not wanted:
            return
        if owned.generation != self._server.generation or self._groups.is_due():
            self.state = await self._groups.make()
        if owned.is_incomplete or owned.generation != self._server.generation:
            # Also for a new connection: whatever Redis went through, it may have brought back what
            # we once had.
            generation, owned.is_incomplete = self._server.generation, False
            if await self._adopt(owner):
                owned.generation = generation
            else:
                owned.is_incomplete = True

    async def _adopt(self, owner: str) -> bool:
        """Read what is pending in a name and not in flight here. False: some could not be read.

        Raises: BrokerUnavailable.
        """
        owned, is_complete = self._of(owner), True
        for group in self._groups.types:
            for stream in self.state.streams_of(group):
                key, after = self._keys.of(stream), b"0"
                while True:
                    pipe = self._server.pipeline()
                    pipe.xreadgroup(group, owner, {key: after}, count=_PAGE)
                    (reply,) = await self._server.execute(pipe)
                    if isinstance(reply, ResponseError):  # without a group nothing is pending
                        is_complete &= code_of(reply) in ("NOGROUP", WRONG_TYPE)
                        break
                    entries = reply[0][1] if reply else []
                    if not entries:
                        break
                    owned.doubtful += self._take(owned, group, stream, entries)
                    after = entries[-1][0]
        return is_complete

    async def _read(self, owner: str, wanted: Mapping[str, Want], found: list[Delivery]) -> None:
        """Live entries first, backfill when there are none. Raises: TransientError."""
        open_: dict[str, Want] = {}
        if not self._is_stopping:
            open_ = {g: want for g, want in wanted.items() if not self._groups.is_paused(g)}
        before = {group: self._wakes[group] for group in open_}
        left = Counter({group: want.live for group, want in open_.items()})
        for level in LEVELS[:-1]:
            await self._read_level(owner, level, left, found)
        self._note_empty(open_, left, LIVE, before)
        if not found:
            left = Counter({group: want.backfill for group, want in open_.items()})
            await self._read_level(owner, BACKFILL, left, found)
            self._note_empty(open_, left, BACKFILL, before)

    def _note_empty(
        self, groups: Iterable[str], left: Counter[str], lane: str, before: Mapping[str, int]
    ) -> None:
        for group in groups:
            if left[group] > 0:
                self._empty_at[group, lane] = before[group]

    async def _read_level(
        self, owner: str, level: str, left: Counter[str], found: list[Delivery]
    ) -> None:
        """Acknowledge, and read at most `left` entries for each group."""
        reads = [
            (group, stream)
            for group, count in left.items()
            if count > 0
            for stream in self.state.streams_of(group)
            if stream.level == level
        ]
        if not reads:
            return
        owned, lost_groups = self._of(owner), set[str]()
        pipe = self._server.pipeline()
        acks = pending.acknowledge(pipe, owned.in_flight.to_acknowledge(), owner)
        for group, stream in reads:
            pipe.xreadgroup(group, owner, {self._keys.of(stream): ">"}, count=left[group])
        try:
            replies = await self._server.execute(pipe)
        except BaseException:
            owned.is_incomplete = True
            raise
        self._take_acknowledged(owned, acks, replies)
        for (group, stream), reply in zip(reads, replies[len(acks) :], strict=True):
            if isinstance(reply, ResponseError):
                if code_of(reply) == "NOGROUP":
                    lost_groups.add(group)
                else:
                    self._refusal_log.refused(f"{group} its events", reply)
                continue
            for _, entries in reply:
                left[group] -= len(entries)
                for one in self._take(owned, group, stream, entries):
                    (owned.doubtful if self._is_doubtful(one) else found).append(one)
        if lost_groups:
            self.state = await self._groups.restore(lost_groups)

    def _take(
        self, owned: _Owned, group: str, stream: Stream, entries: Sequence[Any]
    ) -> list[Delivery]:
        """What was read, and was not in flight here."""
        key = self._keys.of(stream)
        found: list[Delivery] = []
        for entry_id, fields in entries:
            try:
                delivery = decode(group, stream, key, entry_id, fields)
            except ValueError as error:  # added by somebody else, or deleted while it was pending
                log.error("%s: entry %s of %s: %s", group, entry_id.decode(), key, error)
                owned.in_flight.move([unreadable_entry(group, stream, key, entry_id)])
                continue
            if owned.in_flight.add(delivery):
                found.append(delivery)
        return found

    def _is_doubtful(self, delivery: Delivery) -> bool:
        if delivery.again or self._server.run_id != self.state.run_id:
            return True
        recheck_to = self.state.recheck_to.get(delivery.stream, 0)
        return recheck_to > 0 and position_of(delivery.entry_id) <= recheck_to

    async def _sift(self, owned: _Owned, groups: Collection[str]) -> list[Delivery]:
        """Of what is doubtful, what is to be handled. Raises: StoreUnavailable."""
        doubtful = [one for one in owned.doubtful if one.message.group in groups]
        if not doubtful:
            return []
        fresh, done = await fallback.split(self._store, doubtful, self.state)
        looked_at = set(map(id, doubtful))
        owned.doubtful = [one for one in owned.doubtful if id(one) not in looked_at]
        owned.in_flight.move(done)
        return fresh

    async def _acknowledge(self, owner: str) -> None:
        """What a read has not acknowledged: none may come for long. Raises nothing."""
        owned = self._of(owner)
        if owned.in_flight.is_settled or (self._is_listening and not self._server.is_available):
            return
        pipe = self._server.pipeline()
        acks = pending.acknowledge(pipe, owned.in_flight.to_acknowledge(), owner)
        try:
            self._take_acknowledged(owned, acks, await self._server.execute(pipe))
            await self._mark_unmarked(owned)
        except TransientError as error:
            log.debug("not acknowledged: %s", error)

    def _take_acknowledged(
        self, owned: _Owned, acks: Sequence[pending.Batch], replies: Sequence[Any]
    ) -> None:
        for batch, reply in zip(acks, replies, strict=False):
            others = set(map(id, batch.matching(reply)))
            handled = owned.in_flight.acknowledged(batch.deliveries)
            owned.unmarked += [one for one in handled if id(one) in others]

    async def _mark_unmarked(self, owned: _Owned) -> None:
        """What was taken over or lost while it was handled: nobody is to handle it again.

        Raises: StoreUnavailable.
        """
        if owned.unmarked:
            await fallback.mark_handled(self._store, _events(owned.unmarked))
            owned.unmarked = []

    # What becomes of messages

    async def settle(self, owner: str, outcomes: Sequence[Outcome]) -> None:
        """Note what was handled, to be acknowledged with the next read; move the rest to the store.

        Raises: StoreUnavailable; then nothing was moved, and the same outcomes may come again.
        """
        if not outcomes:
            return
        owned = self._of(owner)
        rest, unknown = owned.in_flight.settle(outcomes)
        handled = [(o.group, o.event_id) for o in unknown if o.verdict is Verdict.DONE]
        await fallback.mark_handled(self._store, handled)
        if rest:
            await fallback.move_to_store(self._store, rest)
            owned.in_flight.move(delivery for _, delivery in rest)
        if others := [o for o in unknown if o.verdict is not Verdict.DONE]:
            await self._relieve(owner, others)

    async def _relieve(self, owner: str, outcomes: Sequence[Outcome]) -> None:
        """Move what another process left to the store, by way of our own name.

        It may be alive, only slow, and have settled some itself. Raises: StoreUnavailable.
        """
        by_id = {(outcome.group, outcome.id): outcome for outcome in outcomes}
        ours = self._of(self._owner)
        try:
            found, foreign = await pending.take_over(
                self._server,
                self._keys,
                [(outcome.group, str(outcome.id)) for outcome in outcomes],
                owner,
                self._owner,
                self._refusal_log,
            )
            ours.in_flight.move(foreign)
            moved = [(by_id[one.message.group, one.message.id], one) for one in found]
            if moved:
                await fallback.move_to_store(self._store, moved)
                ours.in_flight.move(found)
        except BrokerUnavailable as error:
            ours.is_incomplete = True
            log.debug("nothing is taken over: %s", error)
        except StoreUnavailable:
            ours.is_incomplete = True
            raise

    async def renew(self, owner: str) -> None:
        """Keep what is in flight in its name. Raises nothing."""
        owned = self._of(owner)
        held = owned.in_flight.held()
        if not held or (self._is_listening and not self._server.is_available):
            return
        try:
            owned.in_flight.drop(await pending.renew(self._server, held, owner))
        except BrokerUnavailable as error:
            log.debug("claims are not renewed: %s", error)
        except ResponseError as error:
            self._refusal_log.refused("to renew claims", error)

    async def held_by(self, owner: str, *, limit: int) -> list[Held]:
        """What is in the name of a process. Raises: StoreUnavailable, BrokerUnavailable."""
        return await pending.held_by(
            self._server,
            self._keys,
            await self.stream_groups(),
            owner,
            limit=limit,
            claim_timeout_s=self._claim_timeout_s,
        )

    async def holders(self) -> dict[str, bool]:
        """Every other process with something in its name -> whether some of that has expired.

        Raises: StoreUnavailable, BrokerUnavailable.
        """
        found = await pending.holders(
            self._server,
            self._keys,
            await self.stream_groups(),
            claim_timeout_s=self._claim_timeout_s,
        )
        if found.pop(self._owner, False):
            self._of(self._owner).is_incomplete = True  # renewed is only what is known here
        return found

    async def forget(self, owner: str) -> bool:
        """Remove a consumer with nothing in its name.

        Raises: StoreUnavailable, BrokerUnavailable.
        """
        consumers = [(pair, owner) for pair in await self.stream_groups()]
        return await pending.remove_consumers(self._server, self._keys, consumers)

    async def backlog(self, groups: Collection[str]) -> tuple[bool, bool]:
        """Whether entries wait for these groups, and whether some are in any process' hands.

        Raises: StoreUnavailable, BrokerUnavailable.
        """
        pairs = [pair for pair in await self.stream_groups() if pair.group in groups]
        return await pending.backlog(self._server, self._keys, pairs)

    async def stream_groups(self) -> list[StreamGroup]:
        """All that the store knows. Raises: StoreUnavailable."""
        if not self.state.committed:
            await self.load_state()
        return list(self.state.committed)

    # The end

    async def quiet(self, owner: str) -> None:
        """Read nothing more: what was read and not handed out goes back. Raises nothing."""
        self._is_stopping = True
        owned = self._of(owner)
        try:
            if self._server.is_available:
                await self._adopt(owner)
        except BrokerUnavailable as error:
            log.debug("what is pending for %s is not read: %s", owner, error)
        left, owned.doubtful = owned.doubtful, []
        try:
            await self.settle(owner, [back(one.message) for one in left])
        except StoreUnavailable as error:
            log.warning("%d messages stay in the name of %s: %s", len(left), owner, error)

    async def leave(self, owner: str) -> None:
        """Acknowledge the last, and remove the consumer. Raises nothing."""
        owned = self._of(owner)
        self._is_listening = False
        try:
            await self._server.connect()
            await self._acknowledge(owner)
            await self.forget(owner)
        except TransientError as error:
            log.debug("%s stays a consumer of Redis: %s", owner, error)
        # What could not be acknowledged will be delivered again: nobody is to handle it again.
        owned.unmarked += owned.in_flight.acknowledged(owned.in_flight.to_acknowledge())
        try:
            await self._mark_unmarked(owned)
        except StoreUnavailable as error:
            count = len(owned.unmarked)
            log.warning("%d messages that are done will be handled again: %s", count, error)


def _events(deliveries: Iterable[Delivery]) -> list[tuple[str, str]]:
    return [(one.message.group, one.message.event_id) for one in deliveries]
