"""What passes between a broker and its subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cordata.core.delivery import Verdict
from cordata.core.outbox import LIVE


class Message(NamedTuple):
    """One event as claimed by one consumer group. Payload and headers are JSON text."""

    #: In the store its row in the outbox, else text that only its broker understands.
    id: int | str
    group: str
    event_id: str
    type: str
    key: str | None
    payload: str
    headers: str
    #: Microseconds since the epoch: when the transaction that wrote the event ran.
    created_at: int
    #: Failed ones so far.
    attempts: int
    #: JSON list of failures, None without any.
    history: str | None
    #: The group has handled this event already: acknowledge it, do not handle it again.
    seen: bool
    #: LIVE or BACKFILL: which places of the worker it may take. That of its event, or more urgent.
    lane: str = LIVE
    #: Its key, where the group wants their order: what is claimed together with the same one is
    #: handled one after the other.
    order_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a claimed message."""

    group: str
    id: int | str
    verdict: Verdict
    #: DONE: for the seen-mark.
    event_id: str = ""
    #: DONE: the seen-mark is in the store already, committed with the effect. DEAD: although it is.
    marked: bool = False
    #: Failed attempts, this one included.
    attempts: int = 0
    #: RETRY and DEFER: until it is due again.
    delay_us: int = 0
    history: str | None = None
    #: `order_key` of the message.
    order_key: str | None = None


class Want(NamedTuple):
    """What a worker has room for, in one group; of a key's run the first one counts."""

    #: Messages of the live lane.
    live: int
    #: Messages of the backfill lane, while nothing live is due in any of the groups.
    backfill: int = 0
    #: Messages of one key at most, where the group wants their order.
    run: int = 1


#: In a `Due`: perhaps at once. Only an exchange can tell, and only of a lane that it wants.
PERHAPS = 0


class Due(NamedTuple):
    """Wall time in microseconds at which a group's next message of each lane is due; now or
    earlier: it can be claimed at once. None: there is none. PERHAPS: nobody knows.
    """

    live: int | None = None
    backfill: int | None = None

    def first(self) -> int | None:
        """Of both lanes."""
        return min((at for at in self if at is not None), default=None)

    def is_due(self, now_us: int) -> bool:
        """Whether anything can be claimed at once."""
        return any(at is not None and at <= now_us for at in self)


#: No message at all.
NOTHING = Due()


def claimable(wanted: Mapping[str, Want], next_at: Mapping[str, Due], now_us: int) -> bool:
    """Whether a claim may bring anything now: backfill only if nothing live is known to be due."""
    live = backfill = False
    for group, due in next_at.items():
        want = wanted.get(group, Want(live=0))
        if due.live is not None and due.live <= now_us:
            if want.live:
                return True
            live = live or due.live != PERHAPS
        if due.backfill is not None and due.backfill <= now_us and want.backfill:
            backfill = True
    return backfill and not live


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What one exchange brought."""

    #: Those of one key follow each other in their order.
    messages: Sequence[Message]
    #: Of the wanted groups that have more.
    next_at: Mapping[str, Due]


def back(message: Message) -> Outcome:
    """Of a message that was not tried."""
    return Outcome(
        group=message.group, id=message.id, verdict=Verdict.BACK, order_key=message.order_key
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """What one pass of the relay did."""

    published: int
    #: When the next entry is due, wall time in microseconds; None: the outbox is empty.
    next_at: int | None
    #: It came to the backfill: nothing live was left.
    backfill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """What is left to do."""

    #: Outbox entries are due.
    outbox: bool
    #: Messages of the groups asked for wait, now or for their next attempt.
    ready: bool
    #: Messages in the hands of some process.
    claimed: bool
    #: Messages in the dead letter.
    dead: int


class Held(NamedTuple):
    """A message in the hands of a process, as seen by another one."""

    id: int | str
    group: str
    #: As in Message.
    order_key: str | None
    attempts: int
    history: str | None
    #: Its claim was not renewed in time.
    expired: bool
