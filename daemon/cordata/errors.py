"""The errors cordata raises: a stable code, a sentence for people, a hint for the next step."""

from __future__ import annotations

import errno


class CordataError(Exception):
    """Base of all errors that cordata raises on purpose.

    `code` is stable, for logs and HTTP bodies; `hint` is the user's next step.
    """

    code = "error"
    #: Whether its message may be logged: it contains no data of the application or its users, only
    #: text of cordata and names of the database schema.
    shown = False

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n", 1)[0].rstrip("."))
        self.hint = hint


class ConfigError(CordataError):
    """The configuration cannot be used."""

    code = "config"
    shown = True

    def __init__(self, *problems: str, hint: str | None = None) -> None:
        super().__init__("\n".join(problems), hint=hint)
        #: Every problem found, one sentence each, so that one run shows them all.
        self.problems = problems


class TransientError(CordataError):
    """Failed for now: the same operation may succeed later."""

    code = "transient"


class StoreUnavailable(TransientError):
    """The store cannot be read or written at the moment."""

    code = "store_unavailable"

    def __init__(
        self, message: str = "", *, retry_after_s: float = 5.0, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        #: Seconds after which a client may try again (the Retry-After of a 503).
        self.retry_after_s = retry_after_s


class StoreFull(StoreUnavailable):
    """The disk that holds the store is full."""

    code = "store_full"


class Unclear(StoreUnavailable):
    """It is not known whether the transaction committed: check before you repeat it."""

    code = "unclear"


class BrokerUnavailable(TransientError):
    """The broker (Redis) cannot be read or written at the moment."""

    code = "broker_unavailable"


class PermanentError(CordataError):
    """Every further attempt would fail, too: a message becomes a dead letter at once."""

    code = "permanent"


class StatementError(PermanentError):
    """A statement is wrong: there is no such table, or a value has a type that cannot be stored.

    The message names the statement and the schema, never a value.
    """

    code = "statement"
    shown = True


class Conflict(CordataError):
    """A constraint of the store refused the write.

    The conflicting row may come from a concurrent transaction, and the next attempt sees it: so an
    event handler that raises Conflict is tried again, as after any other error.
    """

    code = "conflict"

    def __init__(self, message: str = "", *, constraint: str = "") -> None:
        super().__init__(message)
        #: The constraint's name, or `table.column` of the unique key, as the database reports it.
        self.constraint = constraint


class WrongExpectedVersion(Conflict):
    """The stream's version is not the one that the append expected: read it and decide again."""

    code = "wrong_expected_version"

    def __init__(self, stream: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"stream {stream!r} is at version {actual}, not at {expected} as expected",
            constraint="event_stream.version",
        )
        self.stream = stream
        self.expected = expected
        #: The stream's version; 0: there is no such stream.
        self.actual = actual


class KeyReused(PermanentError):
    """An idempotency key was used again with another request body."""

    code = "key_reused"


class AlreadySeen(CordataError):
    """The message was handled before; its effect is in the store."""

    code = "already_seen"


class ClaimLost(CordataError):
    """Another process has claimed the message and handles it; this attempt is discarded."""

    code = "claim_lost"


class TransactionTimeout(TransientError):
    """A transaction or a read was open for too long and was rolled back."""

    code = "transaction_timeout"


class ReadTimeout(TransactionTimeout, StoreUnavailable):
    """A read took too long and was stopped.

    A service of the runtime or a request treats it as StoreUnavailable. For an event handler it
    counts as a failed attempt, since only the handler can make its read shorter (see
    `core.message_state.is_unavailable`).
    """


class TransactionStale(TransientError):
    """Another transaction changed data that this one had read before its first write."""

    code = "transaction_stale"


class ProtocolError(CordataError):
    """The peer broke the protocol; its connection is dropped."""

    code = "protocol"


class LeaseLost(CordataError):
    """This process is no longer the primary; its write was refused."""

    code = "lease_lost"


class PartitionLost(CordataError):
    """Another process handles this partition of the subscription now; the write was refused."""

    code = "partition_lost"


class PoolError(CordataError):
    """The pool could not run a call or store a session. Its protocol sends the class as `code`."""

    code = "pool"


class PoolTransient(PoolError, TransientError):
    """The pool could not do it now; a later attempt may succeed."""

    def __init__(self, message: str = "", *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        #: Seconds after which a caller may try again (the Retry-After of a 503).
        self.retry_after_s = retry_after_s


class PoolPermanent(PoolError, PermanentError):
    """The pool cannot do it; every further attempt would fail, too."""


class PoolSaturated(PoolTransient):
    """The limit of waiting calls or of open connections is reached."""

    code = "saturated"


class QueueTimeout(PoolTransient):
    """No child became free within the call's queue timeout; the call did not run."""

    code = "queue_timeout"


class DeadlineExceeded(PoolTransient):
    """The call's deadline passed before its answer."""

    code = "deadline"

    def __init__(self, message: str = "", *, ran: bool = True) -> None:
        super().__init__(message)
        #: False: it did not start, and will not. True: it ran, and may have had its effect.
        self.ran = ran


class CallCancelled(PoolError):
    """The caller cancelled the call."""

    code = "cancelled"


class ChildCrashed(PoolTransient):
    """The child that ran the call died."""

    code = "crashed"

    def __init__(
        self,
        message: str = "",
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        lines: tuple[str, ...] = (),
        worker: str = "",
        pid: int = 0,
    ) -> None:
        super().__init__(message)
        #: The child's exit status, if no signal ended it.
        self.exit_code = exit_code
        #: The signal that ended it. Both are None when its worker died, too: then it is not known.
        self.signal = signal
        #: The last lines that it wrote to stdout and stderr.
        self.lines = lines
        self.worker = worker
        self.pid = pid


class CommandPoisoned(PoolTransient):
    """The command killed several children in a row and is refused for a while."""

    code = "poisoned"


class CommandUnknown(PoolPermanent):
    """No worker of the pool has the command."""

    code = "unknown_command"


class CommandFailed(PoolError):
    """The command raised an exception; `str(error)` is that exception's message."""

    code = "failed"

    def __init__(self, message: str = "", *, type: str = "", traceback: str = "") -> None:
        super().__init__(message)
        #: Name of the exception's class, with its module unless it is a builtin.
        self.type = type
        #: The traceback of the child, as text.
        self.traceback = traceback


class CommandRefused(CommandFailed, PermanentError):
    """The command raised a PermanentError: every further attempt would fail, too."""


class PoolRestarted(PoolTransient):
    """The pool was restarted while the call may have been running; the call is not repeated."""

    code = "restarted"


class PoolUnavailable(PoolTransient):
    """No child of the pool that can run the call could be reached before the deadline."""

    code = "unavailable"


class PoolClosed(PoolTransient):
    """The pool, or the client, is closing and accepts no calls."""

    code = "closed"


class FrameTooLarge(PoolPermanent):
    """A frame is larger than its receiver allows."""

    code = "frame_too_large"

    def __init__(self, message: str = "", *, length_bytes: int = 0, limit_bytes: int = 0) -> None:
        super().__init__(message)
        self.length_bytes = length_bytes
        self.limit_bytes = limit_bytes
        #: Sent beside the text of the error; a value of 0 is not known.
        self.data = {"length_bytes": length_bytes, "limit_bytes": limit_bytes}


class SessionNotFound(PoolPermanent):
    """There is no such session: it was never created, has expired or was deleted."""

    code = "no_session"


class SessionExists(PoolPermanent):
    """A session with this id exists already."""

    code = "session_exists"


class SessionQuotaExceeded(PoolTransient):
    """The session, all sessions together or their number would exceed the configured limit."""

    code = "quota"


class PreferredWorkerBusy(PoolTransient):
    """The session may only run at its preferred child (`strict_fail`), which is busy or gone."""

    code = "preferred_busy"


_TRANSIENT = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
        *(errno.ENOBUFS, errno.ETOOMANYREFS),
    }
)


def is_transient(error: OSError) -> bool:
    """Whether the operation may succeed later: no space, disk error, no descriptors or memory.

    Other OS errors (no permission, no such directory) need a person to change something.
    """
    return error.errno in _TRANSIENT
