"""What passes between a broker and the consumers of its groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cordata.core.delivery import Verdict

#: Names a message: the event id and the consumer group.
MessageId = tuple[str, str]


class Message(NamedTuple):
    """One event as claimed by one consumer group. Payload and headers are JSON text."""

    group: str
    event_id: str
    type: str
    key: str | None
    priority: int
    payload: str
    headers: str
    #: Microseconds since the epoch: when the transaction that wrote the event ran.
    created_at: int
    #: This one is included: 1 at the first delivery to the group.
    attempt: int
    #: The number of the claim: who settles with another number holds the message no more. 0: it
    #: came from a stream of Redis and has no row in `message`.
    claim: int
    #: JSON list of failures, None without any.
    history: str | None = None
    #: Its key, where the group wants their order: what is claimed together with the same one is
    #: handled one after the other.
    order_key: str | None = None
    #: It may have killed a process: nothing else is claimed beside it.
    suspect: bool = False
    #: Only its broker understands it (the id of an entry in a stream, say).
    token: str = ""

    @property
    def id(self) -> MessageId:
        """Names the message in its broker."""
        return self.event_id, self.group


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a claimed message."""

    message: Message
    verdict: Verdict
    #: DONE: the mark is in the store already, committed with the effect. DEAD: although it is.
    marked: bool = False
    #: RETRY and DEFER: until it is due again.
    delay_us: int = 0
    #: RETRY and DEAD: with the failure of this attempt.
    history: str | None = None


@dataclass(frozen=True, slots=True)
class Want:
    """What a consumer has room for, in one group."""

    #: Messages with a priority of 0 or more; keys, where the group wants their order.
    count: int
    #: Messages with a priority below 0.
    low: int = 0
    #: Messages of one key at most, where the group wants their order.
    run: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What one `settle_and_claim` returned."""

    #: Those of one group and key follow each other in their order.
    messages: Sequence[Message]
    #: Groups that may have more that is due.
    more: frozenset[str] = frozenset()
    #: Wall time of the store in microseconds at which something is due next, as far as known.
    next_at: int | None = None
    #: There are suspects: they are claimed only by a process that holds no other message.
    suspects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """What is left to do."""

    #: Messages of the groups asked for (and of the relay) that are due, or wait for a retry.
    ready: int
    #: Messages that some process holds.
    claimed: int
    #: Messages in the dead letter.
    dead: int


def give_back(message: Message) -> Outcome:
    """The outcome of a message that was not tried."""
    return Outcome(message=message, verdict=Verdict.BACK)


Wants = Mapping[str, Want]
