"""Lets each attempt commit once: its `handled` mark, by which a redelivery is found, is in it.

open --commit--> in its body --seal--> committing --> committed
  |                 |                     |
 end               end: seal raises      end: the end of the attempt waits
  +--> HandlerEnded for every later commit
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cordata.errors import PermanentError


class CommittedTwice(PermanentError):
    """A bug in a handler: it commits twice, and the second commit looks like a redelivery."""


class HandlerEnded(PermanentError):
    """A bug in a handler: a task that it started writes after the handler has ended."""


class CommitGuard:
    """Guards the commit of one attempt. A failed commit may be tried again."""

    __slots__ = ("_begun", "_committing", "_ended", "_on_commit_end", "committed")

    def __init__(self) -> None:
        self._begun = False
        self._committing = False
        self._ended = False
        self._on_commit_end: Callable[[], object] | None = None
        #: Whether the effect is in the store.
        self.committed = False

    @contextmanager
    def commit(self, who: str, what: str) -> Iterator[None]:
        """The context of a commit; `who` and `what` are the handler and its event, for errors.

        Raises: CommittedTwice for a second commit, also while the first is under way: it would find
        the mark, be taken for a redelivery, and be lost silently. HandlerEnded after the end of the
        attempt.
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
            if self._on_commit_end is not None:
                self._on_commit_end()

    def seal(self, who: str) -> None:
        """Within `commit`: from here on the handler awaits only the store.

        Raises: HandlerEnded when the attempt has ended meanwhile; then nothing may be committed.
        """
        self._check_open(who)
        self._committing = True

    def end(self, on_commit_end: Callable[[], object]) -> bool:
        """End the attempt: no later commit is allowed.

        False when a commit is under way; `on_commit_end` is called as soon as its outcome is known.
        """
        self._ended = True
        if self._committing:
            self._on_commit_end = on_commit_end
        return not self._committing

    def _check_open(self, who: str) -> None:
        if self._ended:
            raise HandlerEnded(
                f"{who} writes after its handler has ended",
                hint="await everything that writes before the handler returns",
            )
