"""What every broker promises; that of the store and Redis are held to it by one test suite.

A message is at any time in one of these places, and whatever moves it commits first to the next: a
row of `message`; a stream of Redis; nowhere any more, because its group has a mark in `handled`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from cordata.broker.message import Claimed, Depth, MessageId, Outcome, Wants


class Broker(Protocol):
    """The broker of one process; all methods belong to the loop's thread.

    Unless said otherwise they raise StoreUnavailable. That Redis is unavailable raises nothing:
    meanwhile they return what the store has.
    """

    #: The topic of the store that wakes consumers.
    topic: str

    def status(self) -> str:
        """For STATUS=: what is wrong with the broker; "" when nothing is. The store has its own."""
        return ""

    async def listen(self, groups: Collection[str], wake: Callable[[], None]) -> None:
        """Call `wake` whenever there may be something new for these groups; until cancelled."""
        ...

    async def settle_and_claim(
        self, outcomes: Sequence[Outcome], wants: Wants, *, alone: bool = False
    ) -> Claimed:
        """Settle what was handled and claim more.

        When it raises, call it again with the same outcomes: those that are settled already change
        nothing, and neither do those of messages that this process no longer holds. `alone`: this
        process holds no other message, so one suspect may be claimed, and then nothing beside it.
        """
        ...

    async def release_orphans(self, held: Collection[MessageId]) -> None:
        """Give back claims that the process does not know of (`held`) at two calls in a row.

        When the answer to a claim is lost, the process holds messages without knowing it.
        """
        ...

    async def reclaim(self, owner: str, *, is_dead: bool) -> int:
        """Make claimable what a dead process held, as suspects. Returns how many.

        `is_dead`: it is known to be; else it keeps all if it has renewed its lease meanwhile.
        """
        ...

    async def stop_claiming(self) -> None:
        """Claim nothing any more; what was read and handed to no handler goes back."""
        return

    async def leave(self) -> None:
        """Leave the consumer groups: the last call, when no message is held. Raises nothing."""
        return

    async def depth(self, groups: Collection[str]) -> Depth:
        """What is left to do for the groups. Raises: BrokerUnavailable, too."""
        ...

    def close(self) -> None:
        """Close connections. Twice is fine."""
        return
