"""What a process has read of streams and not settled yet, and what it has to acknowledge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from cordata.broker.claim import Entry
from cordata.broker.message import Message, Outcome
from cordata.broker.redis.naming import Stream
from cordata.core.delivery import Verdict
from cordata.core.outbox import BACKFILL, LIVE

#: The fields of an entry, always all and in this order: so Redis keeps their names once per block.
FIELDS = (b"o", b"e", b"k", b"n", b"c", b"h", b"p")
_FIELDS = list(FIELDS)


class Taken(NamedTuple):
    """A message and the entry of the stream that it came in."""

    message: Message
    stream: Stream
    key: str
    entry_id: bytes
    outbox_id: int
    priority: int
    #: It may have been added to the stream before: see `entry_of`.
    again: bool = False


def taken_of(group: str, stream: Stream, key: str, entry_id: bytes, fields: list[Any]) -> Taken:
    """What was read. Raises: ValueError when the entry is none of ours."""
    if fields[::2] != _FIELDS:
        raise ValueError("these are not the fields of an event")
    outbox_id, event_id, event_key, priority, created_at, headers, payload = fields[1::2]
    message = Message(
        id=f"{key}/{entry_id.decode()}",
        group=group,
        event_id=event_id.decode(),
        type=stream.type,
        key=event_key[1:].decode() if event_key else None,
        payload=payload.decode(),
        headers=headers.decode(),
        created_at=int(created_at),
        attempts=0,
        history=None,
        seen=False,
        lane=BACKFILL if stream.level == BACKFILL else LIVE,
    )
    again = outbox_id.startswith(b"+")
    return Taken(message, stream, key, entry_id, int(outbox_id), int(priority), again)


def entry_of(entry: Entry) -> tuple[str | bytes | int, ...]:
    """Names and values for XADD of an outbox entry.

    One that some relay may have added before has a plus before its number: who reads it looks first
    what became of the other one.
    """
    values: tuple[str | int, ...] = (
        entry.id if entry.position is None else f"+{entry.id}",
        entry.event_id,
        "" if entry.key is None else f"={entry.key}",
        entry.priority,
        entry.created_at,
        entry.headers,
        entry.payload,
    )
    return tuple(word for pair in zip(FIELDS, values, strict=True) for word in pair)


def stray(group: str, stream: Stream, key: str, entry_id: bytes) -> Taken:
    """An entry that holds no event, as far as it takes to acknowledge it."""
    message = Message(
        id=f"{key}/{entry_id.decode()}",
        group=group,
        event_id="",
        type=stream.type,
        key=None,
        payload="{}",
        headers="{}",
        created_at=0,
        attempts=0,
        history=None,
        seen=True,
    )
    return Taken(message, stream, key, entry_id, 0, 0)


class Hands:
    """Of one process."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, object], Taken] = {}
        self._done: list[Taken] = []
        #: Of what is to be acknowledged, what was not handled here: see `let_go`.
        self._let_go: set[tuple[str, object]] = set()

    def add(self, taken: Taken) -> None:
        """It was read; it is this process' until it is settled."""
        self._taken[taken.message.group, taken.message.id] = taken

    def has(self, taken: Taken) -> bool:
        """Whether it was read before, and is not settled."""
        return (taken.message.group, taken.message.id) in self._taken

    def settle(
        self, outcomes: Iterable[Outcome]
    ) -> tuple[list[tuple[Outcome, Taken]], list[Outcome]]:
        """What is done is to be acknowledged.

        Returns what was not handled, and what was though it is not in hand.
        """
        rest: list[tuple[Outcome, Taken]] = []
        others: list[Outcome] = []
        for outcome in outcomes:
            at = outcome.group, outcome.id
            if outcome.verdict is not Verdict.DONE:
                if (taken := self._taken.get(at)) is not None:
                    rest.append((outcome, taken))
            elif (taken := self._taken.pop(at, None)) is not None:
                self._done.append(taken)
            else:
                others.append(outcome)
        return rest, others

    def drop(self, taken: Taken) -> None:
        """It is no affair of this process any more."""
        self._taken.pop((taken.message.group, taken.message.id), None)

    def let_go(self, taken: Taken) -> None:
        """It was handled already, or is in the store: it is to be acknowledged."""
        at = taken.message.group, taken.message.id
        if self._taken.pop(at, None) is not None:
            self._done.append(taken)
            self._let_go.add(at)

    def all(self) -> list[Taken]:
        """What is not settled."""
        return list(self._taken.values())

    def done(self) -> list[Taken]:
        """What is to be acknowledged; from now on that is the caller's to do."""
        done, self._done = self._done, []
        return done

    def acknowledged(self, done: Iterable[Taken]) -> list[Taken]:
        """Nothing more is to be done about these. Returns those that were handled here.

        The others may still be due in the store: nobody may take them for handled.
        """
        handled: list[Taken] = []
        for taken in done:
            at = taken.message.group, taken.message.id
            if at in self._let_go:
                self._let_go.discard(at)
            elif taken.message.event_id:  # not a stray
                handled.append(taken)
        return handled

    def lets_go(self, taken: Taken) -> bool:
        """Of what is to be acknowledged: whether it was not handled here."""
        return (taken.message.group, taken.message.id) in self._let_go

    def put_back(self, done: list[Taken]) -> None:
        """It could not be acknowledged."""
        self._done = done + self._done

    @property
    def empty(self) -> bool:
        """Whether there is nothing, not even to acknowledge."""
        return not self._taken and not self._done

    @property
    def owes(self) -> bool:
        """Whether something is to be acknowledged."""
        return bool(self._done)


def by_stream(all_taken: Iterable[Taken]) -> dict[tuple[str, str], list[Taken]]:
    """(Key, group) -> what was read there."""
    found: dict[tuple[str, str], list[Taken]] = {}
    for taken in all_taken:
        found.setdefault((taken.key, taken.message.group), []).append(taken)
    return found
