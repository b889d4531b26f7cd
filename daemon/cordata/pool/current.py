"""What a command can ask about the call that it runs for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from time import monotonic

from msgspec import Raw

from cordata.pool.caller import Caller
from cordata.pool.protocol import Call, call_id
from cordata.pool.tracked import Session, TrackedMapping

_own_pool = ""


class CurrentCall:
    """One call, as its command sees it."""

    __slots__ = ("_call", "_caller", "_read_globals", "session", "used_globals")

    def __init__(
        self,
        call: Call,
        caller: Caller,
        session: Session | None,
        read_globals: Callable[[], Mapping[str, Raw]],
    ) -> None:
        #: As the command got it; None: the call has none.
        self.session = session
        self._call, self._caller, self._read_globals = call, caller, read_globals
        #: The globals, if the command asked for them.
        self.used_globals: TrackedMapping | None = None

    # What few commands ask for is made when it is asked for.

    @property
    def command(self) -> str:
        """Its name."""
        return self._call.command

    @property
    def request_id(self) -> str:
        """Of the request that caused the call, "" when there was none."""
        return self._call.request_id

    @property
    def id(self) -> str:
        """As the journal has it in CALL_ID."""
        return call_id(self._caller.client, self._call.id)

    @property
    def globals(self) -> TrackedMapping:
        """What all sessions share; assign to change, which counts when the call succeeds."""
        if self.used_globals is None:
            self.used_globals = TrackedMapping(self._read_globals())
        return self.used_globals

    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 when it is over. Soon after it this process is killed."""
        return max(0.0, self._call.deadline - monotonic())

    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more: cancelled, too late, or the caller is gone.

        It asks without waiting (a system call): a long loop calls it now and then, and returns.
        """
        return monotonic() >= self._call.deadline or self._caller.look()


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
