"""What the dispatcher wants done: by links in the manager, by a recorder in tests."""

from __future__ import annotations

from typing import Protocol

from cordata.core.pool.call import Call
from cordata.core.pool.limits import Failure
from cordata.core.pool.registry import Child
from cordata.core.pool.shelf import Session
from cordata.core.pool.state import State


class Effects(Protocol):
    """See the module. None of these comes back into the dispatcher."""

    def run(self, child: Child, call: Call, session: Session | None) -> Failure | None:
        """Send the call, of this session, to the child. A Failure: it cannot be sent."""

    def fail(self, call: Call, failure: Failure) -> None:
        """Answer the caller."""

    def cancel(self, child: Child, call: Call) -> None:
        """Tell the child that nobody wants the result of what it has in hand."""

    def skip(self, child: Child, call: Call) -> None:
        """Tell the child to give this call back, unless it began it: `given_back`."""

    def take_back(self, child: Child) -> None:
        """Have the worker take back what its child has not begun: `taken_back`."""

    def recall(self, child: Child) -> None:
        """End the child's loan: it is to have other work than its client's."""

    def kill(self, child: Child, call: Call, why: str) -> None:
        """Have the worker kill the child, if it still has this call in hand."""

    def retire(self, child: Child) -> None:
        """Have the worker let the child go; its hands are empty."""

    def hang_up(self, child: Child) -> None:
        """End the child's connection: if it lives against all odds, it dials again."""

    def moved(self, child: Child, before: State, to: State) -> None:
        """A step of a child's state."""

    def note(self, event: str, call: Call, **fields: object) -> None:
        """Something for the journal: "saturated", "poisoned", "killed", "crashed", "retried"."""
