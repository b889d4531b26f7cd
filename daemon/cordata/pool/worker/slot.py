"""Who is the worker's child, who warms up to follow it, who leaves; and when the next may start.

```
  child <--start-- (none)          child + spare --replace(child)--> the spare is the child,
    | gone: the spare, if any                                        the former leaves, until gone
```
"""

from __future__ import annotations

import random

from cordata.core.retry import next_delay_s
from cordata.pool.worker.process import ChildProcess, Exit

#: A child that lived so long was no failure of its start.
_SETTLED_S = 60.0
#: Ended by these, the next one starts at once: it was not the child's fault, nor the start's.
_AT_ONCE = ("deadline", "cancelled", "stop")


class Slot:
    """The processes of one worker."""

    def __init__(self) -> None:
        self.child: ChildProcess | None = None
        self.spare: ChildProcess | None = None
        #: Replaced, or stopped, and not gone.
        self.leaving: set[ChildProcess] = set()
        #: Why the child is to be replaced; "": it is not.
        self.due = ""
        #: No child, or no spare, is started before.
        self.start_at = 0.0
        self._failures = 0

    @property
    def up(self) -> bool:
        """Whether there is a warm child."""
        return self.child is not None and self.child.watch.up

    def all(self) -> list[ChildProcess]:
        """Every process that is not gone."""
        current = [child for child in (self.child, self.spare) if child is not None]
        return [*current, *self.leaving]

    @property
    def lacks_one(self) -> bool:
        """Whether one is to be started, as soon as it may."""
        return self.child is None or bool(self.due and self.spare is None)

    def replace(self, former: ChildProcess) -> ChildProcess | None:
        """It leaves after the call in hand. Gives the spare, if that is in its place now."""
        successor = None
        if former is self.child:
            successor = self._succeed()
        elif former is self.spare:
            self.spare = None
        self.leaving.add(former)
        former.leave()
        return successor

    def gone(self, child: ChildProcess, end: Exit, now: float) -> bool:
        """It is dead. Whether the next one has to wait: `fail`."""
        self.leaving.discard(child)
        if child is self.child:
            self._succeed()
        elif child is self.spare:
            self.spare = None
        if now - child.started_at >= _SETTLED_S:
            self._failures = 0
        return end.why not in _AT_ONCE and not child.leaving

    def fail(self, now: float, *, first_s: float, longest_s: float) -> None:
        """A pause before the next start, longer with each that failed."""
        self._failures += 1
        self.start_at = now + next_delay_s(
            self._failures, random.random(), first_s=first_s, longest_s=longest_s
        )

    def _succeed(self) -> ChildProcess | None:
        self.child, self.spare, self.due = self.spare, None, ""
        if self.child is not None:
            self.child.adopt()
        return self.child
