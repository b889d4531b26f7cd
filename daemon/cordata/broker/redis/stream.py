"""Streams of events: their keys, entry ids as numbers, and what an entry holds.

<prefix>:epoch            identifies this copy of the data; gone when Redis lost it
<prefix>:wake             wakes the workers: each entry names event types with unread entries
<prefix>:types            the event types that have a stream
<prefix>:stream:<type>    one stream per event type, made with its first group
"""

from __future__ import annotations

import msgspec

#: The fields of an entry: the event's id, and its document.
ID, DOCUMENT = b"id", b"event"
#: Entries that the wake stream keeps at least.
WAKES = 100

#: Bits of a position for the part of an id after the "-": the sum stays in order as long as no
#: more than two million entries share a millisecond.
_SEQUENCE_BITS = 21


def position_of(entry_id: bytes) -> int:
    """An entry id (`milliseconds-sequence`) as one number that keeps the order."""
    milliseconds, _, sequence = entry_id.partition(b"-")
    return (int(milliseconds) << _SEQUENCE_BITS) + int(sequence or 0)


def id_of(position: int) -> str:
    """The entry id of a position."""
    return f"{position >> _SEQUENCE_BITS}-{position & ((1 << _SEQUENCE_BITS) - 1)}"


class Keys:
    """The keys of one installation."""

    def __init__(self, prefix: str) -> None:
        self.epoch = f"{prefix}:epoch"
        self.wake = f"{prefix}:wake"
        self.types = f"{prefix}:types"
        self._stream = f"{prefix}:stream:"

    def of(self, type: str) -> str:
        """The key of the stream of an event type."""
        return self._stream + type


class StreamEvent(msgspec.Struct):
    """The JSON document of an entry: an event as the store has it."""

    event_id: str
    key: str | None
    created_at: int
    #: It may have been added before: consumers look up whether it was handled.
    again: bool
    headers: msgspec.Raw
    payload: msgspec.Raw


_decoder = msgspec.json.Decoder(StreamEvent)
encode = msgspec.json.Encoder().encode


def decode(fields: dict[bytes, bytes] | None) -> StreamEvent:
    """The event of an entry. Raises: ValueError if it was deleted, or another program added it."""
    if not fields or DOCUMENT not in fields:
        raise ValueError("these are not the fields of an event")
    try:
        return _decoder.decode(fields[DOCUMENT])
    except msgspec.MsgspecError as error:  # no ValueError before msgspec 0.20
        raise ValueError(str(error)) from error
