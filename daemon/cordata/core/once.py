"""The one commit that an attempt may make: it carries the mark by which a redelivery is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cordata.errors import PermanentError


class CommittedTwice(PermanentError):
    """A handler is wrong: part of what it wants written cannot be told from a redelivery."""


class Once:
    """Of one attempt. A commit that failed may be tried again."""

    __slots__ = ("_begun", "committed")

    def __init__(self) -> None:
        self._begun = False
        #: Whether the effect is in the store.
        self.committed = False

    @contextmanager
    def commit(self, who: str, what: str) -> Iterator[None]:
        """Around the commit. Raises: CommittedTwice for a second one, also beside the first: it
        would find the mark, be taken for a redelivery, and be lost without a word.
        """
        if self._begun:
            raise CommittedTwice(
                f"{who} commits twice for one {what}",
                hint=f"put all effects of a {what} into one ctx.run() or ctx.transaction()",
            )
        self._begun = True
        try:
            yield
        except BaseException:
            self._begun = False
            raise
        self.committed = True
