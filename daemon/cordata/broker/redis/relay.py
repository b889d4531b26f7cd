"""The relay: claims messages of the group `redis` and adds their events to streams.

    claimed ──XADD──> in its stream ──> recorded in `redis_sent`, its message deleted
       │                 └─the store has another epoch by now─┐
       └─Redis unavailable, or refuses it ──────────────────> retried later

A pass claims and adds; a task of its own records (`keep_recording`), so that the handlers of the
events need not wait for this commit. The next pass waits for it.

An event has such a message if some group reads its type from a stream. Those with a priority, and
those that no group reads any more, go to the store's groups. If a message is retried, its event may
be in the stream already: it is added again with the flag `again`, so that consumers look up whether
they have handled it.

The relay adds only to the copy of Redis's data that the store knows (run id and epoch), which the
primary maintains: see reconciler.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, NamedTuple

import msgspec
from redis.asyncio.client import Pipeline
from redis.exceptions import ResponseError

from cordata import clock, events
from cordata.broker.contract import Broker
from cordata.broker.group import RELAY
from cordata.broker.message import ClaimLimit, Message, MessageId, Outcome
from cordata.broker.redis.server import WRONG_TYPE, RedisServer, describe
from cordata.broker.redis.state import REDIS_TOPIC, StoredState, load
from cordata.broker.redis.stream import DOCUMENT, ID, Keys, StreamEvent, encode, position_of
from cordata.core.message_state import Verdict
from cordata.core.retry import Backoff
from cordata.errors import BrokerUnavailable, StoreUnavailable
from cordata.log import LogThrottle, fields, logger, with_hint
from cordata.store import CLAIMABLE_TOPIC, Store, Tx

log = logger("cordata.redis")

#: A running primary begins to examine a new Redis within this time.
_PRIMARY_S = 30.0
#: Messages of one claim.
_BATCH = 500
#: Without a wake-up a process looks this often for messages in the store.
LOOK_S = 5.0
#: While Redis or the store is unavailable, or Redis refuses commands.
_BACKOFF = Backoff(0.25, 5.0, least=0.5)
#: KEYS: epoch, streams. ARGV: run id, epoch, then the number of the stream, the event id and the
#: document of each entry. Returns the ids, false where the key is not a stream; nil, without adding
#: anything, if this is another copy of the data.
_APPEND = f"""
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if run_id ~= ARGV[1] or redis.call('GET', KEYS[1]) ~= ARGV[2] then return nil end
local ids = {{}}
for n = 3, #ARGV, 3 do
    local id = redis.pcall('XADD', KEYS[tonumber(ARGV[n])], '*',
        '{ID.decode()}', ARGV[n + 1], '{DOCUMENT.decode()}', ARGV[n + 2])
    if type(id) == 'table' and id.err then
        if not string.find(id.err, 'WRONGTYPE', 1, true) then return id end
        id = false
    end
    ids[#ids + 1] = id
end
return ids
"""


#: Executes a pipeline that adds events of these types, and wakes others that are to read them.
#: Returns its replies. Raises: BrokerUnavailable.
Execute = Callable[[Pipeline, Collection[str]], Awaitable[list[Any]]]


class _Batch(NamedTuple):
    """Messages claimed together, and the recorded state of Redis when they were added."""

    state: StoredState
    messages: Sequence[Message]
    #: Event id -> [type, entry, event id] of those that are in a stream.
    entries: dict[str, list[object]]


class Relay:
    """The relay of one process. `queue` claims in its name."""

    def __init__(self, store: Store, queue: Broker, server: RedisServer, keys: Keys) -> None:
        #: Why Redis, though available, is not used; "" while it is.
        self.trouble = ""
        self._store = store
        self._queue = queue
        self._server = server
        self._keys = keys
        self._state = StoredState()
        #: Claimed, and in no stream yet.
        self._claimed: Sequence[Message] = ()
        #: Of those that are to be retried: to be settled before the next claim.
        self._outcomes: list[Outcome] = []
        #: Added, but perhaps not recorded in `redis_sent` yet.
        self._batch: _Batch | None = None
        self._recording = asyncio.Lock()
        self._added = asyncio.Event()
        #: When `run_if_due` looks again without a wake-up.
        self._deadline = 0.0
        #: Whether a wake-up came since it looked.
        self._is_woken = False
        self._failures = 0
        #: Whether Redis, though available, refused the last pass.
        self._is_refused = False
        #: Of the reason why events wait; reset when they are relayed again.
        self._log_throttle = LogThrottle()
        #: The Redis that the store does not record, and since when; "": it records this one, or
        #: none while the primary recovers it.
        self._unknown_run_id = ""
        self._unknown_since = 0.0

    @property
    def held(self) -> set[MessageId]:
        """The messages that this process has claimed for the relay."""
        batch = self._batch.messages if self._batch is not None else ()
        return {one.id for one in (*self._claimed, *batch, *(o.message for o in self._outcomes))}

    def due_at(self) -> int:
        """When it looks again without a wake-up, in microseconds of the store's wall time."""
        in_s = max(self._deadline - clock.monotonic(), 0.0)
        return self._store.now_us() + int(in_s * 1e6)

    def wake(self) -> None:
        """Look in the next pass. While Redis refuses commands, its pause goes on."""
        if not self._is_refused:
            self._is_woken = True

    async def run_if_due(self, execute: Execute) -> int | None:
        """One pass, if it is time for it. Returns the number of messages claimed, 0 if it failed;
        None: it did not look. Raises nothing.
        """
        if not self._is_woken and clock.monotonic() < self._deadline:
            return None
        self._is_woken = False
        self._deadline = clock.monotonic() + LOOK_S
        try:
            count = await self.run_once(execute)
        except (StoreUnavailable, BrokerUnavailable) as error:
            self._failures += 1
            self._deadline = clock.monotonic() + _BACKOFF.delay_s(self._failures)
            # Before the first attempt to connect, a failure is normal: it is not logged.
            has_tried = bool(self._server.run_id or self._server.reason)
            if has_tried and self._log_throttle.is_due(str(error)):
                why = with_hint(error).removeprefix("Redis: ")
                log.warning("events wait for Redis: %s", why)
            return 0
        self._failures = 0
        if count and self._log_throttle.has_logged:
            log.info("events are relayed again")
            self._log_throttle.reset()
        return count

    async def run_once(self, execute: Execute) -> int:
        """Claim a batch and add it. Returns the number of messages claimed.

        Raises: BrokerUnavailable, StoreUnavailable.
        """
        await self.record_sent()
        await self.settle_failed()
        if not self._server.is_available:  # another task connects: a pass must not wait for it
            raise BrokerUnavailable(f"Redis: {self._server.reason or 'not connected yet'}")
        if self._state.run_id != self._server.run_id:
            await self._load_state()
        limits = {RELAY: ClaimLimit(count=_BATCH, low=_BATCH)}
        claimed = await self._queue.settle_and_claim((), limits)
        self._claimed = claimed.messages
        if self._claimed:
            await self._relay(execute)
        self.trouble, self._is_refused = "", False
        if RELAY in claimed.more:
            self._deadline = 0.0
        elif claimed.next_at is not None:
            due_in_s = (claimed.next_at - self._store.now_us()) / 1e6
            self._deadline = min(self._deadline, clock.monotonic() + due_in_s)
        return len(claimed.messages)

    async def settle_failed(self) -> None:
        """Settle messages that are to be retried. Raises: StoreUnavailable."""
        if outcomes := list(self._outcomes):
            await self._queue.settle_and_claim(outcomes, {})
            del self._outcomes[: len(outcomes)]

    async def _relay(self, execute: Execute) -> None:
        messages = self._claimed
        try:
            streamed = await self._streamed(messages)
            ids = await self._append(streamed, execute)
            if ids is None:  # the primary has recovered it meanwhile, or has to
                await self._load_state()
                ids = await self._append(streamed, execute)
            if ids is None:
                raise self._note_unrecovered()
        except ResponseError as error:
            self._retry_later(messages)
            raise self._note_refusal(describe(error)) from error
        except (BrokerUnavailable, StoreUnavailable):
            self._retry_later(messages)
            raise
        entries = {
            message.event_id: [message.type, position_of(entry_id), message.event_id]
            for message, entry_id in zip(streamed, ids, strict=True)
            if entry_id is not None
        }
        for type in sorted({one.type for one in streamed if one.event_id not in entries}):
            refusal = ResponseError(f"{WRONG_TYPE} the key is no stream")
            self._server.log_refusal(self._keys.of(type), refusal)
        self._batch = _Batch(self._state, messages, entries)
        self._claimed = ()
        self._added.set()

    async def _streamed(self, messages: Sequence[Message]) -> list[Message]:
        """The messages whose type some group reads from a stream."""
        if any(message.type not in self._state.types for message in messages):
            self._state = await self._store.read(load)
        types = set(self._state.groups.values())
        return [one for one in messages if one.type in types and not one.priority]

    async def _append(
        self, messages: Sequence[Message], execute: Execute
    ) -> list[bytes | None] | None:
        """Ids, None where the key is not a stream; None: this copy of the data is not valid.

        Raises: ResponseError, BrokerUnavailable.
        """
        if not messages:
            return []
        types = sorted({message.type for message in messages})
        keys = [self._keys.epoch, *map(self._keys.of, types)]
        number = {type: n for n, type in enumerate(types, start=2)}
        words: list[Any] = [self._state.run_id, self._state.epoch]
        for message in messages:
            words += (number[message.type], message.event_id, encode(_document(message)))
        pipe = self._server.pipeline()
        pipe.eval(_APPEND, len(keys), *keys, *words)
        (reply,) = await execute(pipe, types)
        if isinstance(reply, ResponseError):
            raise reply
        ids: list[bytes | None] | None = reply
        return ids

    async def keep_recording(self, look: Callable[[], None]) -> None:
        """Record what passes have added, until cancelled; call `look` if that failed."""
        while True:
            await self._added.wait()
            self._added.clear()
            try:
                await self.record_sent()
            except (BrokerUnavailable, StoreUnavailable) as error:
                log.debug("not recorded: %s", error)
                look()  # the next pass tries again

    async def record_sent(self) -> None:
        """Record what was added in `redis_sent`; what is in no stream goes to the store's groups.

        If the store records another copy of Redis by now, nothing is recorded, and all messages are
        retried. The row that says which copy it is stays locked until the commit: a primary that
        looks for what is lost changes this row first, so it waits, and sees what was recorded.
        Raises: BrokerUnavailable if it is another copy; StoreUnavailable, and the next call does it
        again.
        """
        async with self._recording:
            if self._batch is not None:
                await self._record(self._batch)

    async def _record(self, batch: _Batch) -> None:
        state, messages, entries = batch
        sent = json.dumps(sorted(entries.values()))
        rest = sorted(one.event_id for one in messages if one.event_id not in entries)
        claims = {message.claim: list[str]() for message in messages}
        for message in messages:
            claims[message.claim].append(message.event_id)

        async def unit(tx: Tx) -> bool:
            server = await tx.fetch_one("redis.lock_server")
            if server is None or (server["run_id"], server["epoch"]) != (state.run_id, state.epoch):
                return False
            if entries:
                await tx.write("redis.add_sent", entries=sent)
            if rest:
                await tx.write("redis.give", ids=json.dumps(rest), now_us=tx.now_us)
                tx.notify(CLAIMABLE_TOPIC)
            for claim, ids in claims.items():
                await tx.write("redis.relayed", ids=json.dumps(ids), claim=claim)
            # What a crash of the database takes back is done again: the event is then in its stream
            # twice, and the mark as handled keeps its effect single.
            await tx.write("commit.unsynced")
            return True

        is_recorded = await self._store.run(unit)
        self._batch = None
        if not is_recorded:
            self._retry_later(messages)
            raise self._note_unrecovered()

    async def _load_state(self) -> None:
        """Load which copy of the data is valid. Raises: BrokerUnavailable if it is not this one."""
        state, now = await self._store.read(load), clock.monotonic()
        is_recovering = state.is_known and not state.run_id
        if is_recovering or state.run_id == self._server.run_id:
            self._unknown_run_id = ""
        elif self._unknown_run_id != self._server.run_id:
            self._unknown_run_id, self._unknown_since = self._server.run_id, now
        elif now - self._unknown_since >= _PRIMARY_S:
            self._server.log_error(
                "no primary looks after this Redis, so nothing is published to it",
                hint="[broker] url and prefix have to be the same on every host, the primary's too:"
                " compare what `cordata config show` says there; and one primary has to run",
            )
        if state.run_id != self._server.run_id:
            raise self._note_unrecovered()
        self._state = state

    def _note_unrecovered(self) -> BrokerUnavailable:
        """Tell the primary that it has to look through this copy. Returns the error to raise."""
        self._state = StoredState()
        self._store.notify(REDIS_TOPIC)
        self.trouble = "its data is new to the primary, which has to look through it first"
        return BrokerUnavailable(f"Redis: {self.trouble}")

    def _note_refusal(self, trouble: str) -> BrokerUnavailable:
        """Redis is available, but takes nothing: wake-ups do not end the pause. Returns the error
        to raise.
        """
        if not self.trouble:
            log.error("Redis takes no events: %s", trouble, extra=fields(events.BROKER_FAILED))
        self.trouble = trouble
        self._is_refused = True
        return BrokerUnavailable(f"Redis: {trouble}")

    def _retry_later(self, messages: Sequence[Message]) -> None:
        """Retry messages that may or may not be in a stream: the attempt is counted, so that they
        are added `again`.
        """
        self._claimed = ()
        self._outcomes += [Outcome(message=one, verdict=Verdict.RETRY) for one in messages]


def _document(message: Message) -> StreamEvent:
    return StreamEvent(
        event_id=message.event_id,
        key=message.key,
        created_at=message.created_at,
        again=message.attempt > 1,
        headers=msgspec.Raw(message.headers.encode()),
        payload=msgspec.Raw(message.payload.encode()),
    )
