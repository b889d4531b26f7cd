"""The consumer: reads streams for this process' groups, acknowledges, and waits for new entries.

    read ──> handler ──handled, marked in the store───────────> acknowledged
      │         └─failed, given back──> a message in the store ──^
      └─may have been handled ──> doubtful ──it was: the store says so─^

An entry is doubtful when it was in Redis before Redis lost data, when a relay has perhaps added it
twice, or when the answer to the read was lost, so that it is pending for this consumer, which has
never received it. No other consumer claims an entry: the pending entries of a dead process move to
the store, by the worker that reclaims its messages or by the primary (pending.py). So an entry may
be acknowledged without a check: its event is marked, or in the store.

A pass is one round trip: what this worker's relay adds, acknowledgements, then a read of all groups
with room for messages. A group is not read while it can have no entries: after a read that returned
less than its limit, until something is added for its type, here or, as the wake stream says, by
another process. A group whose read Redis refused is read again when the state is loaded the next
time. The consumer waits only for the wake stream, by a blocking XREAD that claims nothing, so it
can be stopped at any time. When this wait ends without an answer, or with more entries than that
stream is sure to keep, all groups are read once, because wake-ups may have been missed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from cordata.broker.message import Message, MessageId, Outcome, give_back
from cordata.broker.redis.pending import queue_removal
from cordata.broker.redis.server import WRONG_TYPE, RedisServer, code_of
from cordata.broker.redis.state import REDIS_TOPIC, StoredState, load
from cordata.broker.redis.stream import WAKES, Keys, StreamEvent, decode, position_of
from cordata.core.message_state import Verdict
from cordata.errors import BrokerUnavailable, StoreUnavailable, TransientError
from cordata.log import logger
from cordata.store import CLAIMABLE_TOPIC, Store, Tx

log = logger("cordata.redis")

#: Entries of one read of pending entries.
_PAGE = 500
#: While the store takes no marks.
_PAUSE_S = 0.5
#: A claim waits while more handled messages than this have no mark yet.
_UNMARKED = 1000
#: Messages that `keep_marking` has marked are acknowledged with the next read; if none comes, after
#: this long.
_ACKNOWLEDGE_S = 0.5
#: While Redis refuses reads of the wake stream, all other streams are read this often.
_UNWAKEABLE_LOOK_S = 1.0
#: KEYS: wake stream, streams. ARGV: their types. Wakes all consumers, unless every group of the
#: streams has got all entries: on an idle host the worker that adds an event also reads it.
_WAKE = f"""
local wake = {{}}
for n, type in ipairs(ARGV) do
    local groups = redis.pcall('XINFO', 'GROUPS', KEYS[n + 1])
    local is_left = groups.err
    for _, group in ipairs(groups) do
        local got
        for i = 1, #group, 2 do
            if group[i] == 'last-delivered-id' then got = group[i + 1] end
        end
        local next = redis.call('XRANGE', KEYS[n + 1], '(' .. got, '+', 'COUNT', 1)
        is_left = is_left or #next > 0
    end
    if is_left then wake[#wake + 1] = type; wake[#wake + 1] = '1' end
end
if #wake > 0 then
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', {WAKES}, '*', unpack(wake))
end
"""


class Consumer:
    """The consumer of one process; `name` is its name in Redis."""

    def __init__(self, store: Store, server: RedisServer, keys: Keys, *, name: str) -> None:
        #: The state of Redis as the store records it.
        self.state = StoredState()
        self._store = store
        self._server = server
        self._keys = keys
        self._name = name
        #: Group -> event type.
        self._types: dict[str, str] = {}
        #: Read and not settled.
        self._unsettled: dict[MessageId, Message] = {}
        #: Messages that the caller of the last `give_back_orphans` did not know.
        self._unknown: frozenset[MessageId] = frozenset()
        #: Handled messages without a mark, since their handlers wrote nothing.
        self._unmarked: dict[MessageId, Message] = {}
        self._marking = asyncio.Event()
        #: Settled, to be acknowledged, by group and entry id.
        self._settled: dict[tuple[str, str], Message] = {}
        #: Messages that may have been handled already: looked up before a handler gets them.
        self._doubtful: list[Message] = []
        #: The server's generation up to which lost answers were made up for.
        self._generation = 0
        #: Set when a read found Redis unavailable.
        self._commands_failed = asyncio.Event()
        self._is_stopping = False
        #: Groups that may have entries: something was added for their type since they were read, or
        #: the last read got as many as it asked for.
        self._unread: set[str] = set()
        #: Groups whose read Redis refused.
        self._refused: set[str] = set()
        #: Types with new entries for which nobody else was woken yet.
        self._unannounced: set[str] = set()

    def register(self, groups: Mapping[str, str]) -> None:
        """Set the groups that read streams: group -> event type."""
        self._types |= groups
        self._unread |= groups.keys()

    def reads(self, group: str) -> bool:
        """Whether it reads a stream."""
        return group in self._types

    async def load_state(self) -> None:
        """Read the recorded state of Redis from the store. Raises: StoreUnavailable.

        Groups whose read Redis refused may be read again.
        """
        self._unread |= self._refused
        self._refused.clear()
        before, self.state = self.state, await self._store.read(load)
        if (self.state.run_id, self.state.epoch) != (before.run_id, before.epoch):
            self._note_unread(None)

    # Waiting for new entries

    async def listen(self, wake: Callable[[], None], look: Callable[[], None]) -> None:
        """Call `wake` when there may be entries, and other processes are woken, too; `look` when
        Redis is available again, or a wake-up may have been missed. Until cancelled.
        """
        while True:
            try:
                await self._server.connect()
                pipe = self._server.pipeline()
                pipe.xrevrange(self._keys.wake, count=1)
                (newest,) = await self._server.execute(pipe)
                if isinstance(newest, ResponseError):
                    raise newest
                after = newest[0][0] if newest else b"0"
                self._note_unread(None)
                look()
                while entries := await self._server.wait_for_entries(self._keys.wake, after):
                    after = entries[-1][0]
                    # If there are as many as the stream keeps, earlier ones may have been trimmed.
                    types = {type.decode() for _, fields in entries for type in fields}
                    self._note_unread(types if len(entries) < WAKES else None)
                    wake()
            except BrokerUnavailable:
                await asyncio.sleep(max(self._server.pause_s, 0.01))
            except ResponseError as error:
                self._server.log_refusal(self._keys.wake, error)
                await asyncio.sleep(_UNWAKEABLE_LOOK_S)
                self._note_unread(None)
                look()

    async def keep_connected(self, look: Callable[[], None]) -> None:
        """Until cancelled: make commands get through again, whatever `listen` waits for.

        Its connection may be well, and busy, when that of the commands was lost.
        """
        while True:
            await self._commands_failed.wait()
            try:
                await self._server.connect()
            except BrokerUnavailable:
                await asyncio.sleep(max(self._server.pause_s, 0.01))
                continue
            self._commands_failed.clear()
            look()

    def _note_unread(self, types: Collection[str] | None) -> None:
        """Note that there may be new entries of these types; None: of all types."""
        self._unread |= {
            group for group, type in self._types.items() if types is None or type in types
        }

    def may_have(self, group: str) -> bool:
        """Whether a read may return entries for a group."""
        return group in self._unread and self._server.is_available and not self._is_stopping

    # Reading and acknowledging

    async def read(self, left: dict[str, int]) -> list[Message]:
        """Acknowledge, and read `left` of each group at most. Raises nothing; an error only delays
        both.
        """
        found = list[Message]()
        try:
            if self._server.is_available:
                await self._adopt()
                _, found = await self.execute_and_read(self._server.pipeline(), (), left)
        except TransientError as error:
            log.debug("streams are not read: %s", error)
        if not self._server.is_available:
            self._commands_failed.set()
        try:
            found += await self._sift(left)
        except TransientError as error:
            log.debug("what was delivered before is not looked up: %s", error)
        return found

    async def execute_and_read(
        self, pipe: Pipeline, types: Collection[str], left: dict[str, int]
    ) -> tuple[list[Any], list[Message]]:
        """In one round trip: run the commands of `pipe`, which add events of `types`; acknowledge;
        read, `left` of each group at most; and wake others if more was there.

        Returns the replies to those commands, and the messages; `left` is what is left then.
        Raises: BrokerUnavailable.
        """
        self._note_unread(types)
        self._unannounced |= set(types)
        wanted = {group: n for group, n in left.items() if n > 0 and self.may_have(group)}
        commands_before = len(pipe)
        acknowledged = self._acknowledge(pipe)
        for group, count in wanted.items():
            streams: dict[Any, Any] = {self._keys.of(self._types[group]): ">"}
            pipe.xreadgroup(group, self._name, streams, count=count)
        announced = sorted(self._unannounced)
        if announced:
            keys = [self._keys.wake, *map(self._keys.of, announced)]
            pipe.eval(_WAKE, len(keys), *keys, *announced)
        self._unread -= wanted.keys()  # what is added during the read is noted again
        try:
            replies = await self._server.execute(pipe)
        except BaseException:
            self._unread |= wanted.keys()
            raise
        if announced and isinstance(replies[-1], ResponseError):
            self._server.log_refusal(self._keys.wake, replies[-1])
        else:
            self._unannounced -= set(announced)
        before, replies = replies[:commands_before], replies[commands_before:]
        # Replies to the reads follow, and that of the wake script.
        for messages, reply in zip(acknowledged, replies, strict=False):
            # A key that is no stream any more has no entries.
            if isinstance(reply, ResponseError) and code_of(reply) != WRONG_TYPE:
                self._server.log_refusal(self._keys.of(messages[0].type), reply)
                continue
            for message in messages:
                self._settled.pop((message.group, message.token), None)
        found: list[Message] = []
        reads = replies[len(acknowledged) :]
        for (group, count), reply in zip(wanted.items(), reads, strict=False):
            if isinstance(reply, ResponseError):
                self._note_refusal(group, reply)
                continue
            entries = reply[0][1] if reply else []
            if len(entries) >= count:
                self._unread.add(group)
            left[group] -= len(entries)
            found += self._take(group, entries)
        return before, found

    def _acknowledge(self, pipe: Pipeline) -> list[list[Message]]:
        """Add the commands that acknowledge what is settled. Returns the messages of each one."""
        by_group: dict[tuple[str, str], list[Message]] = {}
        for message in self._settled.values():
            by_group.setdefault((message.type, message.group), []).append(message)
        for (type, group), messages in by_group.items():
            pipe.xack(self._keys.of(type), group, *(message.token for message in messages))
        return list(by_group.values())

    def _note_refusal(self, group: str, error: ResponseError) -> None:
        self._refused.add(group)
        if code_of(error) == "NOGROUP":
            self._store.notify(REDIS_TOPIC)  # the primary creates it, and looks for other losses
        else:
            self._server.log_refusal(f"{group} its events", error)

    async def _adopt(self) -> None:
        """Read pending entries that were never received, as the answer was lost.

        Of all groups at once: a slow server must not keep the pass for long. Raises:
        BrokerUnavailable.
        """
        generation, is_complete = self._server.generation, True
        if self._generation == generation:
            return
        after: dict[str, Any] = dict.fromkeys(self._types, b"0")
        while after:
            pipe = self._server.pipeline()
            for group, entry in after.items():
                streams: dict[Any, Any] = {self._keys.of(self._types[group]): entry}
                pipe.xreadgroup(group, self._name, streams, count=_PAGE)
            replies = await self._server.execute(pipe)
            for group, reply in zip(tuple(after), replies, strict=True):
                del after[group]
                if isinstance(reply, ResponseError):  # no group, so nothing is pending
                    is_complete &= code_of(reply) in ("NOGROUP", WRONG_TYPE)
                elif entries := (reply[0][1] if reply else []):
                    self._take(group, entries, are_doubtful=True)
                    after[group] = entries[-1][0]
        if is_complete:
            self._generation = generation

    def _take(
        self, group: str, entries: Sequence[Any], *, are_doubtful: bool = False
    ) -> list[Message]:
        """Hold the messages of these entries. Returns those that a handler may get at once; the
        others are doubtful.
        """
        type, found = self._types[group], list[Message]()
        for entry_id, fields in entries:
            token = entry_id.decode()
            if (group, token) in self._settled:
                continue
            try:
                event = decode(fields)
                message = _message(group, type, token, event)
            except ValueError as error:  # of another program, or deleted while it was pending
                log.error("%s: entry %s of %s: %s", group, token, self._keys.of(type), error)
                self._settled[group, token] = _message(group, type, token, _FOREIGN)
                continue
            held = self._unsettled.get(message.id) or self._unmarked.get(message.id)
            if held is None:
                self._unsettled[message.id] = message
                is_doubtful = are_doubtful or event.again or self._is_old(entry_id)
                (self._doubtful if is_doubtful else found).append(message)
            elif held.token != token:  # the event is in its stream twice: one entry is enough
                self._settled[group, token] = message
        return found

    def _is_old(self, entry_id: bytes) -> bool:
        """Whether an entry may have been in Redis before Redis lost data."""
        if self._server.run_id != self.state.run_id:
            return True
        return position_of(entry_id) <= self.state.recheck_to

    async def _sift(self, groups: Collection[str]) -> list[Message]:
        """The doubtful messages that are still to be handled. Raises: StoreUnavailable."""
        doubtful = [message for message in self._doubtful if message.group in groups]
        if not doubtful:
            return []

        async def unit(tx: Tx) -> set[MessageId]:
            known: set[MessageId] = set()
            for group in sorted({message.group for message in doubtful}):
                ids = [message.event_id for message in doubtful if message.group == group]
                rows = await tx.fetch_all("redis.not_wanted", ids=json.dumps(ids), group=group)
                known.update((row["event_id"], group) for row in rows)
            return known

        known = await self._store.read(unit)
        self._doubtful = [one for one in self._doubtful if one.group not in groups]
        for message in doubtful:
            if message.id in known:
                self._settle(message)
        return [message for message in doubtful if message.id not in known]

    # Settling messages

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Move failed messages to the store, and mark the others; later reads acknowledge all.

        Raises: StoreUnavailable; then the same outcomes may come again.
        """
        outcomes = [one for one in outcomes if one.message.id in self._unsettled]
        rest = [one for one in outcomes if one.verdict is not Verdict.DONE]

        async def keep(tx: Tx) -> None:
            rows = sorted(_row(outcome, tx.now_us) for outcome in rest)
            await tx.write("redis.keep", messages=json.dumps(rows))
            tx.notify(CLAIMABLE_TOPIC)

        if rest:
            await self._store.run(keep)
        for outcome in outcomes:
            if outcome.verdict is Verdict.DONE and not outcome.marked:
                self._unmarked[outcome.message.id] = self._unsettled.pop(outcome.message.id)
            else:
                self._settle(outcome.message)
        if self._unmarked:
            self._marking.set()
        if len(self._unmarked) > _UNMARKED:
            await self.mark()

    async def mark(self) -> None:
        """Mark handled messages, so that they may be acknowledged. Raises: StoreUnavailable."""
        messages = list(self._unmarked.values())
        ids = sorted(message.id for message in messages)

        async def unit(tx: Tx) -> None:
            await tx.write("redis.mark", events=json.dumps(ids), now_us=tx.now_us)
            # A crash of the database may lose these marks: the events are handled again, but their
            # handlers wrote nothing.
            await tx.write("commit.unsynced")

        self._marking.clear()
        if messages:
            await self._store.run(unit)
        for message in messages:
            if self._unmarked.pop(message.id, None) is not None:
                self._settled[message.group, message.token] = message

    async def keep_marking(self, look: Callable[[], None]) -> None:
        """Mark handled messages until cancelled; call `look` if no read has acknowledged them."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        def acknowledge() -> None:
            nonlocal timer
            timer = None
            if self._settled:
                look()

        while True:
            await self._marking.wait()
            try:
                await self.mark()
            except StoreUnavailable as error:
                log.debug("not marked: %s", error)
                await asyncio.sleep(_PAUSE_S)
                self._marking.set()
                continue
            if timer is None:
                timer = loop.call_later(_ACKNOWLEDGE_S, acknowledge)

    async def give_back_orphans(self, held: Collection[MessageId]) -> None:
        """Give back messages of this consumer that are missing in `held` at two calls in a row.

        Raises: StoreUnavailable.
        """
        doubtful = {message.id for message in self._doubtful}
        unknown = frozenset(self._unsettled.keys() - doubtful - set(held))
        orphaned, self._unknown = unknown & self._unknown, unknown
        await self.settle([give_back(self._unsettled[id]) for id in sorted(orphaned)])

    def _settle(self, message: Message) -> None:
        del self._unsettled[message.id]
        self._settled[message.group, message.token] = message

    def stop_claiming(self) -> Sequence[Message]:
        """Stop reading. Returns the doubtful messages, to be given back."""
        self._is_stopping = True
        doubtful, self._doubtful = self._doubtful, []
        return doubtful

    async def leave(self) -> None:
        """Mark and acknowledge the rest, and leave the groups. Raises nothing."""
        try:
            await self.mark()
        except StoreUnavailable as error:
            log.warning("%d messages that are done come again: %s", len(self._unmarked), error)
        pipe = self._server.pipeline()
        self._acknowledge(pipe)
        for group, type in self._types.items():
            queue_removal(pipe, self._keys.of(type), group, self._name)
        try:
            await self._server.execute(pipe)
        except BrokerUnavailable as error:
            log.debug("the primary takes back what was not acknowledged: %s", error)


#: Stands for the event in an entry that another program has added.
_FOREIGN = StreamEvent("", None, 0, False, msgspec.Raw(b"{}"), msgspec.Raw(b"{}"))


def _message(group: str, type: str, token: str, event: StreamEvent) -> Message:
    return Message(
        group=group,
        event_id=event.event_id,
        type=type,
        key=event.key,
        priority=0,
        payload=bytes(event.payload).decode(),
        headers=bytes(event.headers).decode(),
        created_at=event.created_at,
        attempt=1,
        claim=0,
        token=token,
    )


def _row(outcome: Outcome, now_us: int) -> list[object]:
    """[event id, group, state, attempts, next_at, history, dead_at, marked, owner, claim]"""
    message, is_dead = outcome.message, outcome.verdict is Verdict.DEAD
    is_counted = outcome.verdict in (Verdict.RETRY, Verdict.DEAD)
    delay_us = 0 if outcome.verdict is Verdict.GIVEN_BACK else outcome.delay_us
    return [
        message.event_id,
        message.group,
        "dead" if is_dead else "scheduled" if delay_us else "ready",
        int(is_counted),
        now_us + delay_us,
        outcome.history or "",
        now_us if is_dead else 0,
        int(outcome.marked),
        "",
        0,
    ]
