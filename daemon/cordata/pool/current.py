"""What a command can ask about the call that it runs for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from time import monotonic

from msgspec import Raw

from cordata.pool.protocol import Call, call_id
from cordata.pool.tracked import Session, TrackedMapping

_own_pool = ""


class CurrentCall:
    """One call, as its command sees it."""

    __slots__ = (
        *("_client", "_deadline", "_globals", "_id", "_look", "_read_globals"),
        *("command", "request_id", "session"),
    )

    def __init__(
        self,
        call: Call,
        client: int,
        session: Session | None,
        read_globals: Callable[[], Mapping[str, Raw]],
        look: Callable[[], bool],
    ) -> None:
        self.command = call.command
        #: Of the request that caused the call, "" when there was none.
        self.request_id = call.request_id
        #: As the command got it; None: the call has none.
        self.session = session
        self._client, self._id, self._deadline = client, call.id, call.deadline
        self._read_globals, self._look = read_globals, look
        self._globals: TrackedMapping | None = None

    # What few commands ask for is made when it is asked for.

    @property
    def id(self) -> str:
        """As the journal has it in CALL_ID."""
        return call_id(self._client, self._id)

    @property
    def globals(self) -> TrackedMapping:
        """What all sessions share; assign to change, which counts when the call succeeds."""
        if self._globals is None:
            self._globals = TrackedMapping(self._read_globals())
        return self._globals

    @property
    def used_globals(self) -> TrackedMapping | None:
        """The globals, if the command asked for them."""
        return self._globals

    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 when it is over. Soon after it this process is killed."""
        return max(0.0, self._deadline - monotonic())

    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: cancelled, too late, or the caller is gone.

        It asks without waiting (a system call): a long loop calls it now and then, and returns.
        """
        return monotonic() >= self._deadline or self._look()


current: ContextVar[CurrentCall] = ContextVar("current_call")


def current_call() -> CurrentCall:
    """The call in hand. Raises: LookupError outside of a command."""
    return current.get()


def own_pool() -> str:
    """The directory of the pool whose child this process is; "": it is none."""
    return _own_pool


def set_own_pool(directory: str) -> None:
    """At a child's start."""
    global _own_pool
    _own_pool = directory
