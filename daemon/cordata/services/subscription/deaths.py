"""Attempts that ended with their process: each uses up one attempt, once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from cordata.broker import mark_of
from cordata.eventstore import Claim, Standing

#: Claims before the present one in which a death counts: whoever came in between may have died of
#: something else before it had counted. A reset leaves more terms than that out.
_CLAIMS = 4


def attempt_mark(claim: Claim, position: int, number: int) -> bytes:
    """The mark of attempt `number` at one event, under one claim."""
    return mark_of(claim.subscription, f"{claim.partition}/{claim.term}/{position}/{number}")


class Deaths:
    """Marks of the handlers that ran in processes which have died."""

    def __init__(self) -> None:
        self._marks: set[bytes] = set()

    def add(self, marks: Collection[bytes]) -> None:
        """One more has died, in these handlers."""
        self._marks.update(marks)

    def drop(self, marks: Collection[bytes]) -> None:
        """Whoever was to count these has done so."""
        self._marks.difference_update(marks)

    def count(self, claim: Claim, position: int, number: int) -> bool:
        """Whether a process that had the partition shortly before this claim died in this attempt.

        True once only: what an operator begins anew comes with the same numbers again.
        """
        if not self._marks:
            return False
        found = self._marks.intersection(_before(claim, position, number))
        self._marks -= found
        return bool(found)

    def look(self, standings: Iterable[Standing]) -> None:
        """Drop what others have counted, as the table says."""
        if self._marks:
            for one in standings:
                for number in range(1, one.attempts + 1):
                    self._marks.difference_update(_before(one.claim, one.failing or 0, number))


def _before(claim: Claim, position: int, number: int) -> Iterator[bytes]:
    for term in range(claim.term - _CLAIMS, claim.term):
        yield attempt_mark(replace(claim, term=term), position, number)
