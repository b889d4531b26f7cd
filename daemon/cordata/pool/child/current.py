"""What a command can ask about the call that it runs for."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic

from cordata.pool.child.session import Noted, Session


class CurrentCall:
    """One call, as its command sees it."""

    __slots__ = ("_deadline", "_look", "command", "globals", "id", "request_id", "session")

    def __init__(
        self,
        *,
        id: str,
        command: str,
        request_id: str,
        deadline: float,
        session: Session | None,
        globals: Noted,
        look: Callable[[], bool],
    ) -> None:
        #: As the journal has it in CALL_ID.
        self.id = id
        self.command = command
        #: Of the request that caused the call, "" when there was none.
        self.request_id = request_id
        #: As the command got it; None: the call has none.
        self.session = session
        #: What all sessions share; assign to change, which counts when the call succeeds.
        self.globals = globals
        self._deadline = deadline
        self._look = look

    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 when it is over. Soon after it this process is killed."""
        return max(0.0, self._deadline - monotonic())

    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: cancelled, too late, or the pool is gone.

        It asks without waiting (a system call): a long loop calls it now and then, and returns.
        """
        return monotonic() >= self._deadline or self._look()


current: ContextVar[CurrentCall] = ContextVar("current_call")


def current_call() -> CurrentCall:
    """The call in hand. Raises: LookupError outside of a command."""
    return current.get()
