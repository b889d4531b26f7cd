"""Checks of a call's options; encoding of values, results and errors. No IO."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import DecodeError, Raw, json, msgpack

from cordata.errors import (
    CommandFailed,
    CommandRefused,
    CordataError,
    DeadlineExceeded,
    FrameTooLarge,
    PoolError,
    ProtocolError,
)
from cordata.log import request_id
from cordata.pool.shared.protocol import MAX_NAME, POOL_ERRORS, Failure, check_names

#: Where the sockets of a host's children are unless the configuration says otherwise.
DEFAULT_PATH = "/run/cordata/pool"
#: Longest timeout: poll(2) and epoll_wait(2) take milliseconds of 31 bits.
LONGEST_S = 2e6
#: Error text for calls and streams that a forked process has inherited.
FORKED = "this process was forked from the one that began it: begin it again here"
_encode = msgpack.Encoder().encode
#: Decodes a result into plain values.
unpack = msgpack.Decoder().decode


def check_call(
    command: str,
    session: str,
    timeout_s: float,
    queue_timeout_s: float | None,
    priority: int,
) -> None:
    """Raises: ValueError for an invalid option, TypeError for a name that is not a str."""
    if not 0.0 < timeout_s:
        raise ValueError(f"timeout is {timeout_s}, it must be more than 0")
    _check_text(command)
    if session != "":
        _check_text(session)
    if queue_timeout_s is not None and not 0.0 <= queue_timeout_s:
        raise ValueError(f"queue_timeout is {queue_timeout_s}, it must not be less than 0")
    if not 0 <= priority <= 9:
        raise ValueError(f"priority is {priority}, it must be 0 to 9")


def _check_text(name: str) -> None:
    if not isinstance(name, str):
        kind = type(name).__name__
        raise TypeError(f"command and session are text (a session's is its .id), not {kind}")
    if len(name) > MAX_NAME:
        check_names((name,))
    if not name.isascii():
        name.encode()  # raises here for a lone surrogate, and not when the call is sent


def bounded(timeout_s: float) -> float:
    """The timeout, at most LONGEST_S: a value that timers accept."""
    return min(timeout_s, LONGEST_S)


def current_request() -> str:
    """The id of the current request in the form of a call: at most MAX_NAME, valid UTF-8."""
    cause = request_id.get()
    if cause:
        cause = cause[:MAX_NAME].encode(errors="replace").decode()
    return cause


def encode_value(value: object) -> Raw:
    """The value as MessagePack. Raises: TypeError for what MessagePack does not know."""
    try:
        return Raw(_encode(value))
    except (OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise TypeError(f"not a value of MessagePack: {error}") from None


def decode_values(values: Mapping[str, Raw]) -> dict[str, Any]:
    """The decoded values of a session."""
    return {key: msgpack.decode(value) for key, value in values.items()}


def from_json(text: bytes | str, name: str) -> Raw:
    """A JSON payload as MessagePack. Raises: ValueError; its text names the payload `name`."""
    try:
        return Raw(msgpack.encode(json.decode(text)))
    except (DecodeError, UnicodeError) as error:
        raise ValueError(f"the {name} is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"the {name} is nested too deeply") from None
    except OverflowError:
        raise ValueError(f"the {name} has an integer of more than 64 bits") from None


@lru_cache(maxsize=256)
def decoder_of(kind: Any) -> Callable[[Raw], Any]:
    """A decoder of results into a `kind`."""
    return msgpack.Decoder(kind).decode


def new_client_id() -> int:
    """A random number of a client process."""
    return int.from_bytes(os.urandom(6), "little")


def error_of(failure: Failure) -> CordataError:
    """The exception for a `Failure`."""
    code, text, data = failure.code, failure.message, failure.data
    if code == CommandFailed.code:
        return _failed(text, data)
    if code == DeadlineExceeded.code:
        return DeadlineExceeded(text, ran=data.get("ran") is not False)
    if code == FrameTooLarge.code:
        return FrameTooLarge(text, **data)
    if code == ProtocolError.code:
        return ProtocolError(text or code)
    kind = POOL_ERRORS.get(code, PoolError)
    return kind(text or ("" if code in POOL_ERRORS else code))


def _failed(text: str, data: Mapping[str, Any]) -> CommandFailed:
    """With the exception itself as its cause, where this process can make it."""
    kind = CommandRefused if data.get("permanent") is True else CommandFailed
    name = data.get("type", "")
    # For an exception without a text, such as MemoryError, its name.
    error = kind(text or name, type=name, traceback=data.get("traceback", ""))
    error.__cause__ = _original(data)
    return error


def _original(data: Mapping[str, Any]) -> Exception | None:
    """The exception that the command raised, with the same class and arguments.

    Its module is not imported for that: only children import commands. None if this process has
    not imported it, or if its class cannot be created from the arguments.
    """
    if "arguments" not in data:
        return None
    found: Any = sys.modules.get(data["module"])
    for part in data["name"].split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    try:
        error = found(*data["arguments"])
        error.add_note(f"In the child:\n{data['traceback']}")
    except Exception:  # noqa: BLE001 - the application's own __init__
        return None
    return error
