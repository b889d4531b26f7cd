"""The current call, for the command that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from time import monotonic
from typing import Protocol

from msgspec import Raw

from cordata.errors import CallCancelled, DeadlineExceeded
from cordata.pool.child.tracked import Session, TrackedMapping
from cordata.pool.shared.protocol import Call, call_id


class Caller(Protocol):
    """The connection that a call came from, while it runs."""

    #: Number of the client process.
    client: int
    #: Chunks that may be sent.
    credits: int

    def poll_cancelled(self) -> bool:
        """Read what has arrived, without waiting. True: the caller does not wait any more."""

    def wait(self, event: int, timeout_s: float) -> bool:
        """Wait for an event of its socket, select.POLLIN or POLLOUT; False: none in this time."""

    def send_chunk(self, data: bytes) -> None:
        """Send a chunk. Raises: CallCancelled when the caller left, CallFailure when it does not
        read.
        """

    def fileno(self) -> int:
        """Of its socket; -1: it is closed."""


class CallFailure(Exception):
    """Ends the call with an error of the pool, whose code it has. No command raises it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def unread_error(call: Call, timeout_s: float) -> Exception:
    """The error of a stream whose reader took nothing for `timeout_s`, or until the deadline."""
    if monotonic() >= call.deadline:
        return CallCancelled()
    text = f"nobody read the stream for {timeout_s:g} s ([pool] unread_timeout_s)"
    return CallFailure(DeadlineExceeded.code, text)


class CurrentCall:
    """One call, for its command."""

    __slots__ = ("_call", "_caller", "_read_globals", "session", "used_globals")

    def __init__(
        self,
        call: Call,
        caller: Caller,
        session: Session | None,
        read_globals: Callable[[], Mapping[str, Raw]],
    ) -> None:
        #: The session of the call; None: it has none.
        self.session = session
        self._call, self._caller, self._read_globals = call, caller, read_globals
        #: The globals, if the command asked for them.
        self.used_globals: TrackedMapping | None = None

    # Properties, because few commands use them.

    @property
    def command(self) -> str:
        """Its name."""
        return self._call.command

    @property
    def request_id(self) -> str:
        """Id of the request that caused the call; "": none did."""
        return self._call.request_id

    @property
    def id(self) -> str:
        """The id of the call, as in the journal's field CALL_ID."""
        return call_id(self._caller.client, self._call.id)

    @property
    def globals(self) -> TrackedMapping:
        """The values that all sessions share; changes are stored if the call succeeds."""
        if self.used_globals is None:
            self.used_globals = TrackedMapping(self._read_globals())
        return self.used_globals

    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 when it is over. Soon after it this process is killed."""
        return max(0.0, self._call.deadline - monotonic())

    def cancelled(self) -> bool:
        """Whether the caller does not wait any more: it cancelled or left, or the deadline passed.

        Does not block (one system call): a long loop should call it now and then, and return.
        """
        return monotonic() >= self._call.deadline or self._caller.poll_cancelled()


current: ContextVar[CurrentCall] = ContextVar("current_call")


def current_call() -> CurrentCall:
    """The current call. Raises: LookupError outside of a command."""
    return current.get()
