"""What every broker promises; that of the store and Redis are held to it by one test suite.

A message is at any time in one of these places, and whatever moves it commits first to the next:
the outbox; a stream or the store's `message` table, waiting or in a process' hands; the dead
letters; or nowhere any more, because its group has handled it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from cordata.broker.direct import Taker
from cordata.broker.message import Claimed, Depth, Due, Held, Outcome, Relayed, Want
from cordata.store import Fence


class Broker(Protocol):
    """The broker of one process; all methods belong to the loop's thread.

    Unless said otherwise they raise StoreUnavailable, and nothing for a broker that is away: what
    needs it then brings nothing, and is made up for later. A broker that has nothing to do for
    one of those with a body leaves it out.
    """

    #: Of the store: wakes the relay.
    outbox_topic: str
    #: Of the store: wakes the subscriptions, those in `listen` among them.
    stream_topic: str

    def status(self) -> str:
        """For STATUS=: what is wrong with it; "" when nothing is, or it is the store's affair."""
        return ""

    async def register(
        self,
        groups: Mapping[str, str],
        *,
        keyed: Collection[str] = (),
        fence: Fence | None = None,
    ) -> None:
        """Make groups known (group -> event type), so that they get what is published from now.

        Those in `keyed` handle the events of one key one at a time, in their order.
        """
        ...

    async def relay(self, limit: int) -> Relayed:
        """Publish due outbox entries: most urgent first, then oldest first.

        `limit` of them at a time; it may do several such passes. Raises: BrokerUnavailable;
        nothing is lost then, and nothing has to be undone.
        """
        ...

    async def outbox_due_at(self) -> int | None:
        """When the next outbox entry is due, without waiting for writers; None: it is empty."""
        ...

    async def listen(self, owner: str, groups: Collection[str], ring: Callable[[], None]) -> None:
        """Call `ring` whenever there may be something new for these groups; until cancelled."""
        ...

    def bring(self, taker: Taker) -> None:
        """What this process publishes it may bring to its own subscriptions, already claimed."""
        return

    async def due_at(self, groups: Iterable[str]) -> Mapping[str, Due]:
        """Groups that have messages -> when the next is due, without waiting for writers.

        PERHAPS for a group of which only an exchange can tell.
        """
        ...

    async def exchange(
        self, owner: str, outcomes: Sequence[Outcome], wanted: Mapping[str, Want]
    ) -> Claimed:
        """Settle what was handled and claim more.

        When it raises, call it again with the same outcomes: those that are settled already change
        nothing. Outcomes of messages that `owner` no longer holds change nothing, either, but for
        their seen-mark. Backfill is claimed while none of the wanted groups has anything live that
        is due.
        """
        ...

    def expects(self) -> bool:
        """Whether this process brought something that nobody has looked for yet."""
        return False

    def pass_on(self) -> None:
        """Nobody here takes what there is to claim: others are to be told at once."""
        return

    def doubts(self) -> bool:
        """Whether there may be claims of this process whose answer was lost; `renew` looks."""
        return False

    async def renew(self, owner: str) -> None:
        """Extend all claims of a living process."""
        ...

    async def quiet(self, owner: str) -> None:
        """Bring nothing new any more: what was read ahead and not claimed goes back."""
        return

    async def leave(self, owner: str) -> None:
        """The last: its hands are empty. Raises nothing."""
        return

    async def owners(self, dead: Collection[str] = ()) -> Mapping[str, bool]:
        """Every process that holds messages -> whether some of its claims have expired.

        `dead` are known to be gone: what they hold is looked for thoroughly, and not only now and
        then.
        """
        ...

    async def held(self, owner: str, *, limit: int) -> Sequence[Held]:
        """Messages in the hands of a process, `limit` at most; `exchange` settles them."""
        ...

    async def forget(self, owner: str) -> bool:
        """A process that is gone. False: not now, for it may hold something after all."""
        return True

    async def take_entries_back(self, dead: Collection[str]) -> int:
        """Free outbox entries in the hands of relays that are gone. Returns how many."""
        return 0

    async def depth(self, groups: Iterable[str]) -> Depth:
        """What is left to do in the outbox and for the groups. Raises: BrokerUnavailable."""
        ...

    def given_up(self) -> int:
        """How many outbox entries this process gave up, because nobody takes them."""
        return 0

    def close(self) -> None:
        """Close connections. Twice is fine."""
        return
