"""The contract of a broker; one test suite checks both, on the store and on Redis.

A message is always in one of these places, and a move commits to the new place first: a row of
`message`; a stream of Redis; or none, when its group has a mark in `handled`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from cordata.broker.message import Claimed, ClaimLimits, Message, MessageId, Outcome


class Broker(Protocol):
    """The broker of one process; all methods belong to the loop's thread.

    Unless documented otherwise they raise StoreUnavailable. While Redis is unavailable they raise
    nothing, and return messages of the store.
    """

    def status(self) -> str:
        """For STATUS=: the problem with the broker, except the store's own; "" for none."""
        return ""

    async def listen(
        self, groups: Mapping[str, str], wake: Callable[[], None], look: Callable[[], None]
    ) -> None:
        """Call `wake` when there may be new messages for these groups (name -> event type) and
        other processes are woken, too; `look` when only this one has to look. Runs until cancelled.
        """
        ...

    async def settle_and_claim(
        self, outcomes: Sequence[Outcome], limits: ClaimLimits, *, suspect_allowed: bool = False
    ) -> Claimed:
        """Settle the outcomes and claim more messages; with Redis also relay events, whatever the
        limits are, until `stop_claiming`.

        When it raises, call it again with the same outcomes: to settle twice, or without the claim,
        changes nothing.

        `suspect_allowed`: it may claim one suspect, and then nothing else, because this process has
        no other message, or suspects have waited 5 s for its messages to end. Without it, nothing
        is claimed while a suspect of these groups waits.
        """
        ...

    async def give_back_orphans(self, held: Collection[MessageId]) -> None:
        """Give back claims of this process that are missing in `held` at two calls in a row.

        Such claims remain when the answer to a claim was lost.
        """
        ...

    async def reclaim(self, owner: str, *, is_dead: bool) -> int:
        """Make the messages of a dead process claimable, as suspects. Returns how many.

        `is_dead`: its death is certain; else nothing happens if it has renewed its process lease
        since.
        """
        ...

    def stop_claiming(self) -> Sequence[Message]:
        """Claim no more messages. Returns those that no handler was given: settle them, too. Raises
        nothing.
        """
        return ()

    async def leave(self) -> None:
        """Leave the consumer groups: the last call, without open claims. Raises nothing."""
        return

    def close(self) -> None:
        """Close connections. May be called twice."""
        return
