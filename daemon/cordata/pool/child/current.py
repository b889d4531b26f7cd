"""What a command can ask about the call that it runs for."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic

from cordata.core.pool.message import Values
from cordata.core.pool.order import LentRun, Run
from cordata.pool.child.session import Noted, Session


class CurrentCall:
    """One call, as its command sees it."""

    __slots__ = (
        *("_deadline", "_epoch", "_look", "_serial", "_shared", "_values"),
        *("command", "request_id", "session"),
    )

    def __init__(
        self,
        run: Run | LentRun,
        session: Session | None,
        values: Values,
        deadline: float,
        epoch: str,
        look: Callable[[], bool],
    ) -> None:
        self.command = run.command
        #: Of the request that caused the call, "" when there was none.
        self.request_id = run.request_id
        #: As the command got it; None: the call has none.
        self.session = session
        self._values = values
        self._shared: Noted | None = None
        self._deadline, self._epoch, self._serial, self._look = deadline, epoch, run.n, look

    # What few commands ask for is made when it is asked for.

    @property
    def id(self) -> str:
        """As the journal has it in CALL_ID."""
        return f"{self._epoch}-{self._serial}"

    @property
    def globals(self) -> Noted:
        """What all sessions share; assign to change, which counts when the call succeeds."""
        if self._shared is None:
            self._shared = Noted(self._values)
        return self._shared

    @property
    def shared(self) -> Noted | None:
        """The globals, if the command asked for them."""
        return self._shared

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
