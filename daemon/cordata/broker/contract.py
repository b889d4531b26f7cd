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

    Unless said otherwise they raise StoreUnavailable, and nothing when Redis is away: then they
    bring nothing, and make up for it later.
    """

    #: Of the store: wakes consumers.
    topic: str

    def status(self) -> str:
        """For STATUS=: what is wrong with it; "" when nothing is, or it is the store's affair."""
        return ""

    async def listen(self, groups: Collection[str], ring: Callable[[], None]) -> None:
        """Call `ring` whenever there may be something new for these groups; until cancelled."""
        ...

    async def exchange(
        self, outcomes: Sequence[Outcome], wants: Wants, *, alone: bool = False
    ) -> Claimed:
        """Settle what was handled and claim more.

        When it raises, call it again with the same outcomes: those that are settled already change
        nothing, and neither do those of messages that this process no longer holds. `alone`: this
        process has nothing else in hand, so one suspect may be claimed, and then nothing beside it.
        """
        ...

    async def renew(self, known: Collection[MessageId]) -> None:
        """Keep this process' claims; what it holds beyond `known`, twice in a row, goes back.

        (A claim whose answer was lost is in the hands of a process that does not know of it.)
        """
        ...

    async def take_back(self, owner: str, *, gone: bool) -> int:
        """Make claimable what a dead process held, as suspects. Returns how many.

        `gone`: it is known dead; else it is left alone if it has renewed its lease meanwhile.
        """
        ...

    async def quiet(self) -> None:
        """Claim nothing any more: what was read ahead and not claimed goes back."""
        return

    async def leave(self) -> None:
        """The last: the hands of this process are empty. Raises nothing."""
        return

    async def depth(self, groups: Collection[str]) -> Depth:
        """What is left to do for the groups. Raises: BrokerUnavailable, too."""
        ...

    def close(self) -> None:
        """Close connections. Twice is fine."""
        return
