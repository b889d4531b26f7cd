"""The errors cordata raises: a stable code, a sentence for people, a hint for the next step."""

from __future__ import annotations

import errno


class CordataError(Exception):
    """Base of all errors raised on purpose.

    `code` is stable and goes into logs and HTTP bodies; `hint` is what the user can do next.
    """

    code = "error"
    #: Whether its message may be logged: it is of our own or of the database's schema, and holds
    #: nothing that an application or its users wrote.
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
    """Failed for now; the same attempt may succeed later."""

    code = "transient"


class StoreUnavailable(TransientError):
    """The store cannot take or answer anything at the moment."""

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
    """Whether the commit happened is not known: look before doing it again."""

    code = "unclear"


class BrokerUnavailable(TransientError):
    """The broker that is not the store cannot take or give anything at the moment."""

    code = "broker_unavailable"


class PermanentError(CordataError):
    """Will fail again however often it is tried; goes to the dead letter at once."""

    code = "permanent"


class StatementError(PermanentError):
    """A statement cannot run as it is: no such table, a type that cannot be stored.

    The message names the statement and the schema, never a value.
    """

    code = "statement"
    shown = True


class Conflict(CordataError):
    """A constraint of the store refused the write.

    What it stumbled over may be another's that it sees in its next attempt: an event's handler that
    ends with it is tried again as after any other error.
    """

    code = "conflict"

    def __init__(self, message: str = "", *, constraint: str = "") -> None:
        super().__init__(message)
        #: Name of the constraint, or `table.column` of the unique key, as the store tells it.
        self.constraint = constraint


class WrongExpectedVersion(Conflict):
    """The stream has another version than the append expected: read it again and decide anew."""

    code = "wrong_expected_version"

    def __init__(self, stream: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"stream {stream!r} is at version {actual}, expected was {expected}",
            constraint="event_stream.version",
        )
        self.stream = stream
        self.expected = expected
        #: 0: there is no such stream.
        self.actual = actual


class KeyReused(PermanentError):
    """An idempotency key came with another body than before."""

    code = "key_reused"


class AlreadySeen(CordataError):
    """The message was handled before; its effect is in the store."""

    code = "already_seen"


class ClaimLost(CordataError):
    """The message is another process' by now, which handles it; nothing of this attempt counts."""

    code = "claim_lost"


class TransactionTimeout(TransientError):
    """A transaction or a read was open for too long and was rolled back."""

    code = "transaction_timeout"


class ReadTimeout(TransactionTimeout, StoreUnavailable):
    """A read took too long and was stopped.

    For code that needs the answer (a service of the runtime, a request) it is a store that does not
    answer. A handler is responsible for its own reads: see `core.delivery.is_away`.
    """


class TransactionStale(TransientError):
    """What a transaction had read was changed by another before its first write."""

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
    """The pool could not run a call, or keep a session. Each class has its code on the wire."""

    code = "pool"


class PoolTransient(PoolError, TransientError):
    """The pool could not do it now; later it may."""

    def __init__(self, message: str = "", *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        #: Seconds after which another try has a chance (the Retry-After of a 503).
        self.retry_after_s = retry_after_s


class PoolPermanent(PoolError, PermanentError):
    """The pool will not do it, however often it is asked."""


class PoolSaturated(PoolTransient):
    """As many calls wait as may wait, or as many connections are open as may be."""

    code = "saturated"


class QueueTimeout(PoolTransient):
    """No child became free within the call's queue timeout; the call did not run."""

    code = "queue_timeout"


class DeadlineExceeded(PoolTransient):
    """The call's deadline passed before its answer."""

    code = "deadline"

    def __init__(self, message: str = "", *, ran: bool = True) -> None:
        super().__init__(message)
        #: False: it had not started, and will not. True: it ran, and may have had its effect.
        self.ran = ran


class CallCancelled(PoolError):
    """The caller cancelled the call."""

    code = "cancelled"


class WorkerCrashed(PoolTransient):
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
        #: Its exit status, when it ended by itself.
        self.exit_code = exit_code
        #: The signal that ended it; both None: its worker died with it, so it is unknown.
        self.signal = signal
        #: What it wrote last on stdout and stderr.
        self.lines = lines
        self.worker = worker
        self.pid = pid


class CommandPoisoned(PoolTransient):
    """The command killed several children in a row and is refused for a while."""

    code = "poisoned"


class CommandUnknown(PoolPermanent):
    """No worker of the pool knows the command."""

    code = "unknown_command"


class CommandFailed(PoolError):
    """The command raised; `str(error)` is what its exception said."""

    code = "failed"

    def __init__(self, message: str = "", *, type: str = "", traceback: str = "") -> None:
        super().__init__(message)
        #: Name of the exception's class, with its module unless it is a builtin.
        self.type = type
        #: The traceback of the child, as text.
        self.traceback = traceback


class CommandRefused(CommandFailed, PermanentError):
    """The command raised a PermanentError: trying again cannot help."""


class PoolRestarted(PoolTransient):
    """The pool was restarted while the call may have been running; it is not run again."""

    code = "restarted"


class PoolUnavailable(PoolTransient):
    """Nobody answered at the pool's socket before the deadline, or nobody who can run it yet."""

    code = "unavailable"


class PoolClosed(PoolTransient):
    """The pool, or the client, is closing and takes no calls."""

    code = "closed"


class FrameTooLarge(PoolPermanent):
    """A frame is larger than its receiver takes."""

    code = "frame_too_large"

    def __init__(self, message: str = "", *, length_bytes: int = 0, limit_bytes: int = 0) -> None:
        super().__init__(message)
        self.length_bytes = length_bytes
        self.limit_bytes = limit_bytes
        #: What travels beside the text; 0: it is not known.
        self.data = {"length_bytes": length_bytes, "limit_bytes": limit_bytes}


class SessionNotFound(PoolPermanent):
    """There is no such session: it never was, has expired or was deleted."""

    code = "no_session"


class SessionExists(PoolPermanent):
    """A session with this id exists already."""

    code = "session_exists"


class SessionQuotaExceeded(PoolTransient):
    """The session, all sessions together or their number would exceed the configured bound."""

    code = "quota"


class PreferredWorkerBusy(PoolTransient):
    """The session may only run at its own worker (`strict_fail`), which is busy or not there."""

    code = "preferred_busy"


_TRANSIENT = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM),
        *(errno.ENOBUFS, errno.ETOOMANYREFS),
    }
)


def is_transient(error: OSError) -> bool:
    """Whether the same may succeed later: out of space, disk error, out of descriptors or memory.

    Other OS errors (no permission, no such directory) need a person to change something.
    """
    return error.errno in _TRANSIENT
