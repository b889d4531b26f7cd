"""Names of keys, and entry ids as numbers.

<prefix>:epoch                        which history of the data this is; gone when Redis lost it
<prefix>:stream:<type>:<level>        one stream per event type and level, made when first used
"""

from __future__ import annotations

from typing import NamedTuple

from cordata.core.outbox import BACKFILL

#: Levels, most urgent first: what a reader takes first.
URGENT, NORMAL, LOW = "urgent", "normal", "low"
LEVELS = (URGENT, NORMAL, LOW, BACKFILL)

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
        self._streams = f"{prefix}:stream:"

    def of(self, stream: Stream) -> str:
        """The key of a stream."""
        return f"{self._streams}{stream.type}:{stream.level}"

    def stream_of(self, key: str) -> Stream:
        """The stream of a key."""
        type, _, level = key.removeprefix(self._streams).rpartition(":")
        return Stream(type, level)
