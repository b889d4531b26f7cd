"""Streams of events: the names of their keys, entry ids as numbers, and what an entry holds.

<prefix>:epoch                        identifies this copy of the data; gone when Redis lost it
<prefix>:wake                         one entry for each batch that was added: wakes the workers
<prefix>:stream:<type>:<level>        one stream per event type and level, made when first used
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from cordata.broker.claim import Entry
from cordata.broker.message import Message
from cordata.core.outbox import BACKFILL, LIVE

#: Levels, most urgent first: the order in which a consumer reads.
URGENT, NORMAL, LOW = "urgent", "normal", "low"
LEVELS = (URGENT, NORMAL, LOW, BACKFILL)

#: The one field of an entry.
FIELD = b"event"

#: Bits of a position for the part of an id after the "-": the sum stays in order as long as no
#: more than two million entries share a millisecond.
_SEQUENCE_BITS = 21


def level_of(lane: str, priority: int) -> str:
    """The level of an entry; inside one it is first come, first served."""
    if lane == BACKFILL:
        return BACKFILL
    return NORMAL if priority == 0 else URGENT if priority > 0 else LOW


def position_of(entry_id: bytes) -> int:
    """An entry id (`milliseconds-sequence`) as one number that keeps the order."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return (int(milliseconds) << _SEQUENCE_BITS) + int(sequence or 0)


def id_of(position: int) -> str:
    """The entry id of a position."""
    return f"{position >> _SEQUENCE_BITS}-{position & ((1 << _SEQUENCE_BITS) - 1)}"


class Stream(NamedTuple):
    """The stream of one event type and level."""

    type: str
    level: str


def rank_of(stream: Stream) -> int:
    """Its place among the levels: 0 is the most urgent."""
    return LEVELS.index(stream.level) if stream.level in LEVELS else len(LEVELS)


class Keys:
    """The keys of one installation."""

    def __init__(self, prefix: str) -> None:
        self.epoch = f"{prefix}:epoch"
        self.wake = f"{prefix}:wake"
        self._streams = f"{prefix}:stream:"

    def of(self, stream: Stream) -> str:
        """The key of a stream."""
        return f"{self._streams}{stream.type}:{stream.level}"

    def stream_of(self, key: str) -> Stream:
        """The stream of a key."""
        type, _, level = key.removeprefix(self._streams).rpartition(":")
        return Stream(type, level)


class _Document(msgspec.Struct):
    """The JSON document in an entry."""

    id: int
    event_id: str
    key: str | None
    priority: int
    created_at: int
    #: A relay may have added the event before: look up what became of that entry.
    again: bool
    headers: msgspec.Raw
    payload: msgspec.Raw


_decoder = msgspec.json.Decoder(_Document)
_encoder = msgspec.json.Encoder()


class Delivery(NamedTuple):
    """A message and the stream entry that it came in."""

    message: Message
    stream: Stream
    key: str
    entry_id: bytes
    outbox_id: int
    priority: int
    #: The event may be in its stream a second time: see `encode`.
    again: bool = False


def encode(entry: Entry) -> bytes:
    """An outbox entry as the document of a stream entry.

    `again` is set when some relay may have added it before: a consumer then looks up first whether
    it was handled.
    """
    document = _Document(
        id=entry.id,
        event_id=entry.event_id,
        key=entry.key,
        priority=entry.priority,
        created_at=entry.created_at,
        again=entry.position is not None,
        headers=msgspec.Raw(entry.headers.encode()),
        payload=msgspec.Raw(entry.payload.encode()),
    )
    return _encoder.encode(document)


def decode(
    group: str, stream: Stream, key: str, entry_id: bytes, fields: dict[bytes, bytes] | None
) -> Delivery:
    """What was read. Raises: ValueError when the entry is none of ours, or was deleted."""
    if not fields or FIELD not in fields:
        raise ValueError("these are not the fields of an event")
    try:
        document = _decoder.decode(fields[FIELD])
    except msgspec.MsgspecError as error:  # no ValueError before msgspec 0.20
        raise ValueError(str(error)) from error
    message = Message(
        id=f"{key}/{entry_id.decode()}",
        group=group,
        event_id=document.event_id,
        type=stream.type,
        key=document.key,
        payload=bytes(document.payload).decode(),
        headers=bytes(document.headers).decode(),
        created_at=document.created_at,
        attempts=0,
        history=None,
        seen=False,
        lane=BACKFILL if stream.level == BACKFILL else LIVE,
    )
    return Delivery(message, stream, key, entry_id, document.id, document.priority, document.again)


def unreadable(group: str, stream: Stream, key: str, entry_id: bytes) -> Delivery:
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
    return Delivery(message, stream, key, entry_id, 0, 0)


def address_of(message_id: str) -> tuple[str, bytes]:
    """(Key, entry id) of a message's id."""
    key, _, entry_id = message_id.rpartition("/")
    return key, entry_id.encode()
