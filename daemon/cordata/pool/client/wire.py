"""What clients of the pool say and understand, without a socket: options, values, errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from time import monotonic
from typing import Any, TypeVar

from msgspec import DecodeError, Raw, json, msgpack

from cordata.core.pool.codec import POOL_ERRORS
from cordata.core.pool.limits import LONGEST_S
from cordata.core.pool.loan import FEATURE
from cordata.core.pool.message import (
    MAX_NAME,
    Ask,
    CallFrame,
    ErrorFrame,
    GlobalOp,
    Hello,
    SessionOp,
    ToClient,
    Values,
    check_names,
)
from cordata.errors import (
    CommandFailed,
    CommandRefused,
    CordataError,
    DeadlineExceeded,
    FrameTooLarge,
    PoolError,
    PoolTransient,
    ProtocolError,
    WorkerCrashed,
)
from cordata.log import request_id
from cordata.pool.fingerprint import start_of

#: Where the manager listens unless the configuration says otherwise.
DEFAULT_PATH = "/run/cordata/pool.sock"
#: The largest frame that a client takes: the manager, which holds it too, has the real bound.
MAX_TAKEN = 1 << 30
#: Of a call, when it names none.
DEFAULT_TIMEOUT_S = 60.0
#: For what a forked process has inherited.
FORKED = "this process was forked from the one that began it: begin it again here"
#: A slow reader of a stream tells at least this often that it reads, also before half of its window
#: is used: the pool ends streams that nobody reads.
CREDIT_EVERY_S = 1.0
A = TypeVar("A")
#: The manager ends a call at its deadline and knows whether it ran: it has so long to say so.
ANSWER_GRACE_S = 0.25
#: First and longest pause between two attempts to reach the manager.
DIAL_MIN_S, DIAL_MAX_S = 0.05, 2.0
#: Operations that may be sent twice: the second time finds what the first has left.
_HARMLESS = frozenset({"get", "touch", "status", "sessions"})


def hello_of(name: str, *, operator: bool, borrows: bool = False) -> Hello:
    """Who this process is; `borrows`: it can use children on loan."""
    return Hello(
        role="operator" if operator else "client",
        name=name,
        pid=os.getpid(),
        # With the pid it tells the manager which child a command calls from.
        start=start_of(),
        inv=os.environ.get("INVOCATION_ID", ""),
        max=MAX_TAKEN,
        has=[FEATURE] if borrows else [],
    )


def call_of(
    command: str,
    payload: object,
    timeout_s: float,
    session: str = "",
    queue_timeout_s: float | None = None,
    idempotent: bool = False,
    priority: int = 0,
    credits: int = 0,
) -> CallFrame:
    """The call, encoded now: what the caller does with `payload` afterwards does not change it.

    Raises: TypeError for a payload that MessagePack does not know, ValueError for an option.
    """
    if not 0.0 < timeout_s:
        raise ValueError(f"timeout is {timeout_s}, it must be more than 0")
    if not (isinstance(command, str) and isinstance(session, str)):
        kind = type(session if isinstance(command, str) else command).__name__
        raise TypeError(f"command and session are text (a session's is its .id), not {kind}")
    if len(command) > MAX_NAME or len(session) > MAX_NAME:
        check_names((command, session))
    if not (command.isascii() and session.isascii()):
        (command + session).encode()  # what UTF-8 cannot say is found here, and not when it is sent
    if queue_timeout_s is not None and not 0.0 <= queue_timeout_s:
        raise ValueError(f"queue_timeout is {queue_timeout_s}, it must not be less than 0")
    if not 0 <= priority <= 9:
        raise ValueError(f"priority is {priority}, it must be 0 to 9")
    cause = request_id.get()[:200]
    if not cause.isascii():
        cause = cause.encode(errors="replace").decode()
    # By position: one of these is made for every call.
    return CallFrame(
        0,
        command,
        packed(payload),
        session,
        min(timeout_s, LONGEST_S),
        None if queue_timeout_s is None else min(queue_timeout_s, LONGEST_S),
        idempotent,
        priority,
        credits,
        cause,
    )


def deadline_of(timeout_s: float) -> float:
    """Monotonic, and no later than what timers can be set to."""
    return monotonic() + min(timeout_s, LONGEST_S)


def check_question(message: SessionOp | GlobalOp | Ask) -> None:
    """Raises: ValueError for a name that is too long, TypeError for one that is no text."""
    if isinstance(message, SessionOp):
        names = (message.s, message.wk or "", *message.set, *message.delete, *message.by)
    elif isinstance(message, GlobalOp):
        names = (*message.set, *message.delete, *message.keys)
    else:
        names = (message.name, message.after)
    check_names(names)


def packed(value: object) -> Raw:
    """A value as it travels. Raises: TypeError for what MessagePack does not know."""
    try:
        return Raw(msgpack.encode(value))
    except (OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise TypeError(f"not a value of MessagePack: {error}") from None


def from_json(text: bytes | str, name: str) -> Raw:
    """A payload that comes as JSON. Raises: ValueError, which says what is wrong with `name`."""
    try:
        return Raw(msgpack.encode(json.decode(text)))
    except (DecodeError, UnicodeError) as error:
        raise ValueError(f"the {name} is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"the {name} is nested too deeply") from None
    except OverflowError:
        raise ValueError(f"the {name} has an integer of more than 64 bits") from None


def window_of(credit: int) -> int:
    """The credits of a stream. Raises: ValueError."""
    if not 1 <= credit <= 1024:
        raise ValueError(f"credit is {credit}, it must be 1 to 1024")
    return credit


def may_repeat(message: object) -> bool:
    """Whether it may be sent again, though its receiver may have had it."""
    if isinstance(message, CallFrame):
        return message.idempotent
    if isinstance(message, GlobalOp | SessionOp):
        return message.op in _HARMLESS
    return getattr(message, "op", "") in _HARMLESS


def values_of(data: Mapping[str, object]) -> Values:
    """Values of a session as they travel. Raises: TypeError as `packed` does."""
    return {key: packed(value) for key, value in data.items()}


def plain(values: Mapping[str, Raw]) -> dict[str, Any]:
    """Values of a session as they were."""
    return {key: msgpack.decode(value) for key, value in values.items()}


@lru_cache(maxsize=256)
def decoder_of(kind: Any) -> Callable[[Raw], Any]:
    """Turns a result into a `kind`; None: into plain values."""
    return msgpack.decode if kind is None else msgpack.Decoder(kind).decode


def error_of(frame: ErrorFrame) -> CordataError:
    """What an `error` frame raises at the caller."""
    code, text, data = frame.code, frame.m, frame.data
    if code == CommandFailed.code:
        failed = CommandRefused if data.get("permanent") is True else CommandFailed
        name = _text(data, "type")
        # One that said nothing, as a MemoryError: its name says more than nothing.
        return failed(text or name, type=name, traceback=_text(data, "traceback"))
    if code == WorkerCrashed.code:
        lines = data.get("lines")
        return WorkerCrashed(
            text,
            exit_code=_number(data, "exit_code"),
            signal=_number(data, "signal"),
            lines=tuple(str(line) for line in lines) if isinstance(lines, list) else (),
            worker=_text(data, "worker"),
            pid=_number(data, "pid") or 0,
        )
    if code == DeadlineExceeded.code:
        return DeadlineExceeded(text, ran=data.get("ran") is not False)
    if code == FrameTooLarge.code:
        length, limit = _number(data, "length_bytes"), _number(data, "limit_bytes")
        return FrameTooLarge(text, length_bytes=length or 0, limit_bytes=limit or 0)
    if code in ("protocol", "version", "forbidden"):
        return ProtocolError(text or code)
    kind = POOL_ERRORS.get(code, PoolError)
    error = kind(text or ("" if code in POOL_ERRORS else code))
    if near := _text(data, "near"):
        error.hint = f"did you mean {near!r}?"
    after = data.get("retry_after_s")
    if isinstance(error, PoolTransient) and isinstance(after, int | float):
        error.retry_after_s = float(after)
    return error


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _number(data: Mapping[str, Any], key: str) -> int | None:
    value = data.get(key)
    return value if isinstance(value, int) else None


def expected(answer: ToClient, kind: type[A]) -> A:
    """The answer, if it is of that kind. Raises: ProtocolError."""
    if not isinstance(answer, kind):
        raise ProtocolError(f"{type(answer).__name__} came in place of {kind.__name__}")
    return answer
