"""Runs one call: calls the function and encodes the result or the error."""

from __future__ import annotations

import contextlib
import inspect
import os
import select
import sys
import traceback
from collections.abc import Callable, Generator
from contextvars import copy_context
from importlib import import_module
from pathlib import Path
from time import monotonic
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Raw, msgpack

from cordata import trace
from cordata.errors import CallCancelled, FrameTooLarge, PermanentError, PoolError
from cordata.log import logger, request_id
from cordata.pool.child.current import Caller, CallFailure, CurrentCall, current, unread_error
from cordata.pool.child.tracked import Session, TrackedMapping
from cordata.pool.shared.protocol import (
    MAX_ENTRIES,
    Call,
    Chunk,
    End,
    Failure,
    NotRun,
    Packet,
    Result,
    encode,
    too_large,
)
from cordata.pool.shared.spec import ChildSpec

if TYPE_CHECKING:  # asyncio and SQLite are imported by the first call that needs them
    from cordata.pool.child.coroutines import CommandLoop
    from cordata.pool.shared.sessions import Delta, SessionStore

log = logger("cordata.pool")

#: Characters of a message, and of a traceback (its end says most).
_TEXT, _TRACE = 4096, 16384
#: Bytes of an exception's arguments that are sent with it, at most.
_ARGUMENTS = 4096
#: Parameters of a command that get the session of the call.
_SESSION = ("session", "_session")


class Command:
    """A function, and the name of its session parameter ("": none)."""

    __slots__ = ("function", "session_name")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.session_name = ""
        with contextlib.suppress(ValueError, TypeError):  # one that is written in C
            names = inspect.signature(function).parameters
            self.session_name = next((name for name in _SESSION if name in names), "")


def find(target: str) -> Callable[..., Any]:
    """The function at `module:name`. Raises: ImportError if none; what the import raises."""
    module, _, name = target.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ImportError(f"there is no function {target}")
    return found  # type: ignore[no-any-return]


class CommandRunner:
    """Runs calls, one after the other."""

    def __init__(self, spec: ChildSpec, store: SessionStore | None = None) -> None:
        """Import the commands, and run the functions of `@app.child_init`. Raises: what they raise.

        `store`: used instead of the file that the spec names.
        """
        self._spec = spec
        self._limit = spec.max_frame_bytes
        self._store = store
        self._loop: CommandLoop | None = None
        self._commands = {name: Command(find(place)) for name, place in spec.commands.items()}
        for place in spec.inits:
            made = find(place)()
            if inspect.iscoroutine(made):
                self.loop.run(made)

    @property
    def loop(self) -> CommandLoop:
        """The event loop, made for the first async command."""
        if self._loop is None:
            from cordata.pool.child.coroutines import CommandLoop

            self._loop = CommandLoop()
        return self._loop

    @property
    def store(self) -> SessionStore:
        """The session store; the file is opened for the first call that uses it."""
        if self._store is None:
            from cordata.pool.shared.sessions import SessionStore

            spec = self._spec
            self._store = SessionStore(Path(spec.sessions), spec.session_limits)
        return self._store

    def close(self) -> None:
        """Close the event loop; only for tests, as a child just ends."""
        if self._loop is not None:
            self._loop.close()

    def prepare(self, call: Call, now: float) -> Session | Packet | None:
        """The session of the call (None: it has none), or the answer to one that must not begin
        here.
        """
        if call.command not in self._commands:
            return NotRun(call.number, "unknown_command")
        if call.deadline <= now:
            return NotRun(call.number, "deadline")
        if not call.session:
            return None
        own = self._spec.place.worker
        try:
            found = self.store.use(call.session, own)
        except PoolError as error:
            return Failure(call.number, error.code, str(error))
        affinity = found.affinity if self._spec.is_of_pool(found.worker) else ""
        if affinity not in ("", "hint") and found.worker != own:
            return NotRun(call.number, "moved", found.worker, affinity)
        return Session(found.id, found.worker, affinity, found.data, found.counters)

    def run(self, call: Call, session: Session | None, caller: Caller) -> tuple[bytes, bool]:
        """Run the call; sends the chunks of a stream. Returns the encoded answer, and whether the
        call failed.

        Raises: only what ends the process, such as SystemExit.
        """
        began = monotonic()
        seen = CurrentCall(call, caller, session, lambda: self.store.globals())
        try:
            value = copy_context().run(self._call, self._commands[call.command], call, seen, caller)
            worker = affinity = ""
            if session is not None and session.affinity:
                worker, affinity = session.worker, session.affinity
            run_us = _microseconds(began)
            # Before the changes are stored: a result that cannot be sent fails the call.
            if call.credits:
                data = encode(End(call.number, run_us, worker, affinity))
            else:
                # The value is encoded together with its packet.
                data = encode(Result(call.number, value, run_us, worker, affinity))  # type: ignore[arg-type]
                if len(data) > self._limit:
                    raise too_large(len(data), self._limit)
            if session is not None or seen.used_globals is not None:
                self._save(session, seen.used_globals, caller)
            return data, False
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            return self._failure(call, error, began), True

    def _call(self, command: Command, call: Call, seen: CurrentCall, caller: Caller) -> object:
        """As `_value`. A process that the function has forked ends here, however it comes back: it
        would store and answer this call again.
        """
        pid = os.getpid()
        try:
            return self._value(command, call, seen, caller)
        finally:
            if os.getpid() != pid:
                _end_fork(call.command, sys.exception())

    def _value(self, command: Command, call: Call, seen: CurrentCall, caller: Caller) -> object:
        """Call the function. Returns the result; None for a stream, whose chunks are sent."""
        current.set(seen)
        if call.request_id:  # else it has the default
            request_id.set(call.request_id)
        if call.request_id or call.traceparent:
            trace.begin_call(call.request_id, call.traceparent, seen.id)
        if command.session_name:
            call.keywords[command.session_name] = seen.session
        value = command.function(*call.arguments, **call.keywords)
        kind = type(value)
        if kind is CoroutineType:
            value = self.loop.run(value, caller, seen.remaining_s())
        elif kind is GeneratorType or kind is AsyncGeneratorType:
            parts: _Chunks | _List
            parts = _Chunks(caller, call, self._limit) if call.credits else _List(self._limit)
            unread_timeout_s = self._spec.unread_timeout_s
            if kind is GeneratorType:
                _drain(value, parts.add, caller, call, unread_timeout_s)
            else:
                draining = self.loop.drain(value, parts.add, caller, call, unread_timeout_s)
                self.loop.run(draining, caller, seen.remaining_s())
            return parts.value()
        if call.credits:
            _Chunks(caller, call, self._limit).add(value)
            return None
        return value

    def _save(self, session: Session | None, shared: TrackedMapping | None, caller: Caller) -> None:
        """Store the changes of the call before its result is sent. Changes of an abandoned call are
        dropped. Raises: FrameTooLarge, CallCancelled; CallFailure when the store refuses them.
        """
        delta = _delta(session, shared)
        if delta is None:
            return
        if caller.poll_cancelled():
            raise CallCancelled
        try:
            self.store.save("" if session is None else session.id, delta)
        except PoolError as error:
            raise CallFailure(error.code, str(error)) from None

    def _failure(self, call: Call, error: Exception, began: float) -> bytes:
        data: dict[str, Any] = {}
        if isinstance(error, CallCancelled):
            code, text = "cancelled", "the command ended, because its caller had left"
            if monotonic() >= call.deadline:
                code, text, data = "deadline", "the command ended at its deadline", {"ran": True}
        elif isinstance(error, FrameTooLarge):
            code, text = error.code, f"the answer: {error}"
            data = {"length_bytes": error.length_bytes, "limit_bytes": error.limit_bytes}
        elif isinstance(error, CallFailure):
            code, text = error.code, str(error)
        else:
            code, text = "failed", _clean(_message(error))[:_TEXT]
            data = _described(error)
        run_us = _microseconds(began)
        packet = encode(Failure(call.number, code, text, data, run_us))
        if len(packet) > self._limit:  # with a very small max_frame_bytes
            packet = encode(Failure(call.number, code, text[:200], {}, run_us))
        return packet


class _Chunks:
    """Sends the parts of a stream as chunks."""

    def __init__(self, caller: Caller, call: Call, limit: int) -> None:
        self._caller, self._number, self._limit = caller, call.number, limit

    def add(self, value: Any) -> None:
        """Send the next part. Raises: FrameTooLarge, CallCancelled, CallFailure."""
        data = encode(Chunk(self._number, value))
        if len(data) > self._limit:
            raise too_large(len(data), self._limit)
        self._caller.send_chunk(data)

    def value(self) -> None:
        """None: all parts were sent."""


class _List:
    """Collects the parts of a generator for a caller that wants one result; at most one message."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count, self._body = limit, 0, bytearray()

    def add(self, value: Any) -> None:
        """Add the next part. Raises: FrameTooLarge."""
        self._body += msgpack.encode(value)
        self._count += 1
        if len(self._body) > self._limit:
            raise too_large(len(self._body), self._limit)

    def value(self) -> Raw:
        """The parts as a MessagePack array, with a length of 32 bits."""
        return Raw(b"\xdd" + self._count.to_bytes(4, "big") + bytes(self._body))


def _drain(
    values: Generator[Any, None, None],
    sink: Callable[[Any], None],
    caller: Caller,
    call: Call,
    unread_timeout_s: float,
) -> None:
    """Pass each value to `sink`; those of a stream one for each credit."""
    with contextlib.closing(values):
        for value in values:
            if call.credits:
                _take_credit(caller, call, unread_timeout_s)
            sink(value)


def _take_credit(caller: Caller, call: Call, unread_timeout_s: float) -> None:
    """Wait until one more chunk may be sent. Raises: CallCancelled, CallFailure."""
    until = min(monotonic() + unread_timeout_s, call.deadline)
    while not caller.poll_cancelled():
        if caller.credits:
            caller.credits -= 1
            return
        if not caller.wait(select.POLLIN, until - monotonic()):
            raise unread_error(call, unread_timeout_s)
    raise CallCancelled


def _delta(session: Session | None, shared: TrackedMapping | None) -> Delta | None:
    """The changes of the call; None: no changes. Raises: FrameTooLarge for too many."""
    of_session = session is not None and bool(session.set or session.deleted or session.counted)
    of_globals = shared is not None and bool(shared.set or shared.deleted)
    if not of_session and not of_globals:
        return None
    from cordata.pool.shared.sessions import Delta

    delta = Delta()
    if session is not None:
        delta.set, delta.delete, delta.count = session.set, list(session.deleted), session.counted
    if shared is not None:
        delta.globals_set, delta.globals_delete = shared.set, list(shared.deleted)
    parts = (delta.set, delta.delete, delta.count, delta.globals_set, delta.globals_delete)
    if sum(map(len, parts)) > MAX_ENTRIES:
        raise FrameTooLarge(f"more than {MAX_ENTRIES} changes of session and globals")
    return delta


def _end_fork(command: str, error: BaseException | None) -> NoReturn:
    """End this process, which a command forked, with the exit status that Python would use."""
    status = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            status = error.code or 0
        elif error is not None:
            log.error("a process that %s forked failed", command, exc_info=error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status & 0xFF)  # also when the command has closed them


def _microseconds(began: float) -> int:
    return max(1, int((monotonic() - began) * 1e6))  # 0 says that the command was not called


def _described(error: Exception) -> dict[str, Any]:
    """`data` of a Failure: enough to raise the same exception where its class is imported."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    data = {
        "type": f"{module}{kind.__qualname__}",
        "module": kind.__module__,
        "name": kind.__qualname__,
        "traceback": _clean(_trace(error))[-_TRACE:],
        "permanent": isinstance(error, PermanentError),
    }
    with contextlib.suppress(Exception):  # values that MessagePack does not have
        arguments = msgpack.encode(error.args)
        if len(arguments) <= _ARGUMENTS and msgpack.decode(arguments) == list(error.args):
            data["arguments"] = list(error.args)
    return data


def _message(error: Exception) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - the application's own __str__
        return f"({type(second).__name__} in its __str__)"


def _trace(error: Exception) -> str:
    """The traceback without the frames of this module, which are the first ones."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code in _OWN:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


_OWN = {
    *(CommandRunner.run.__code__, CommandRunner._call.__code__, CommandRunner._value.__code__),
    _drain.__code__,
}


def _clean(text: str) -> str:
    """The text with lone surrogates escaped, as UTF-8 cannot encode them."""
    return text.encode(errors="backslashreplace").decode()
