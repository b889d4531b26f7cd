"""The one commit that an attempt may make: it carries the mark by which a redelivery is known.

open --begin--> in its body --seal--> committing --> committed
  |                 |                     |
 end               end: seal raises      end: the end of the attempt waits
  +--> HandlerEnded for every later begin
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cordata.errors import PermanentError


class CommittedTwice(PermanentError):
    """A handler is wrong: its second commit cannot be told from a redelivery."""


class HandlerEnded(PermanentError):
    """A handler is wrong: a task that it started writes after the handler has ended."""


class CommitGuard:
    """Guards the commit of one attempt. A commit that failed may be tried again."""

    __slots__ = ("_begun", "_committing", "_ended", "_settled", "committed")

    def __init__(self) -> None:
        self._begun = False
        self._committing = False
        self._ended = False
        self._settled: Callable[[], object] | None = None
        #: Whether the effect is in the store.
        self.committed = False

    @contextmanager
    def commit(self, who: str, what: str) -> Iterator[None]:
        """Around the commit. Raises: CommittedTwice for a second one, also beside the first: it
        would find the mark, be taken for a redelivery, and be lost without a word. HandlerEnded
        after the end of the attempt.
        """
        self._check_open(who)
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
        else:
            self.committed = True
        finally:
            self._committing = False
            if self._settled is not None:
                self._settled()

    def seal(self, who: str) -> None:
        """Within `commit`: from here on nothing of the handler's own is waited for.

        Raises: HandlerEnded when the attempt has ended meanwhile; then nothing may be committed.
        """
        self._check_open(who)
        self._committing = True

    def end(self, settled: Callable[[], object]) -> bool:
        """The attempt is over: nothing that comes later may commit.

        False when a commit is under way; `settled` is called as soon as its outcome is known.
        """
        self._ended = True
        if self._committing:
            self._settled = settled
        return not self._committing

    def _check_open(self, who: str) -> None:
        if self._ended:
            raise HandlerEnded(
                f"{who} writes after its handler has ended, when its outcome was told already",
                hint="await everything that writes before the handler returns",
            )
