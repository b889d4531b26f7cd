"""The errors cordata raises: a stable code, a sentence for people, a hint for the next step."""

from __future__ import annotations


class CordataError(Exception):
    """Base of all errors raised on purpose.

    `code` is stable and goes into logs and HTTP bodies; `hint` is what the user can do next.
    """

    code = "error"

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n", 1)[0].rstrip("."))
        self.hint = hint


class ConfigError(CordataError):
    """The configuration cannot be used."""

    code = "config"

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


class BrokerUnavailable(TransientError):
    """The broker that is not the store cannot take or give anything at the moment."""

    code = "broker_unavailable"


class PermanentError(CordataError):
    """Will fail again however often it is tried; goes to the dead letter at once."""

    code = "permanent"


class Conflict(PermanentError):
    """A constraint of the store refused the write."""

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


class TransactionTimeout(TransientError):
    """A transaction or a read was open for too long and was rolled back."""

    code = "transaction_timeout"


class ReadTimeout(TransactionTimeout, StoreUnavailable):
    """A read took too long and was stopped.

    To who needs its answer in order to go on (a service of the runtime, a request) that is a store
    that does not answer. A handler answers for its own reads: see `core.delivery.is_away`.
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
