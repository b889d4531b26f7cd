"""The data that a broker and its consumers exchange: messages, outcomes, limits, claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from cordata.core.message_state import Verdict

#: Identifies a message: the event id and the consumer group.
MessageId = tuple[str, str]


class Message(Struct, frozen=True):
    """One event as claimed by one consumer group. Payload and headers are JSON text."""

    group: str
    event_id: str
    type: str
    key: str | None
    priority: int
    payload: str
    headers: str
    #: The time of the transaction that published the event, in microseconds since the epoch.
    created_at: int
    #: The number of this attempt: 1 at the first delivery to the group.
    attempt: int
    #: The number of the claim: settling with an old number changes nothing. 0: it was not claimed
    #: in the store (`is_from_stream`).
    claim: int
    #: JSON list of failures, None without any.
    history: str | None = None
    #: Its key in a keyed group: messages with the same one are handled one after the other.
    order_key: str | None = None
    #: Whether it may have killed a process: then nothing else is claimed beside it.
    suspect: bool = False
    #: For its broker only, such as the id of an entry in a stream.
    token: str = ""

    @property
    def id(self) -> MessageId:
        """Identifies the message in its broker."""
        return self.event_id, self.group

    @property
    def is_from_stream(self) -> bool:
        """Whether it came from a stream of Redis, and has no row in `message`."""
        return not self.claim


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of handling a claimed message."""

    message: Message
    verdict: Verdict
    #: Whether the mark is in the store already, committed with the effect; for DONE and DEAD.
    marked: bool = False
    #: RETRY and DEFER: time until it is due again.
    delay_us: int = 0
    #: RETRY and DEAD: with the failure of this attempt.
    history: str | None = None


class ClaimLimit(Struct, frozen=True):
    """The limits of a claim for one group."""

    #: Messages with a priority of 0 or more; in a keyed group, keys.
    count: int
    #: Messages with a priority below 0.
    low: int = 0
    #: In a keyed group, messages of each key.
    run: int = 1


class Claimed(Struct, frozen=True, kw_only=True):
    """The result of `settle_and_claim`."""

    #: Sorted so that those of one group and key are adjacent, in their order.
    messages: Sequence[Message]
    #: Groups that may have more due messages.
    more: frozenset[str] = frozenset()
    #: When to call again at the latest, in microseconds of the store's wall time: a message is due
    #: then, or with Redis a look. None: not known.
    next_at: int | None = None
    #: Whether there are suspects: a process without other messages may claim one, or one that has
    #: other messages when the suspect has waited 5 s for them to end.
    suspects: bool = False
    #: Messages that the relay to Redis claimed, 0 if it failed; None: it did not look for any.
    relayed: int | None = None


def give_back(message: Message) -> Outcome:
    """The outcome of a message that was not attempted."""
    return Outcome(message=message, verdict=Verdict.GIVEN_BACK)


ClaimLimits = Mapping[str, ClaimLimit]
