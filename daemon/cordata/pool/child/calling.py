"""One call: its payload in, its function, its answer out, whatever happens in between."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Generator, Mapping
from contextvars import copy_context
from importlib import import_module
from time import monotonic
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from msgspec import msgpack

from cordata.core.pool.codec import encode
from cordata.core.pool.loan import LARGE
from cordata.core.pool.message import MAX_ENTRIES, Delta, End, ErrorFrame, Result
from cordata.core.pool.order import LentRun, News, Passed, Run
from cordata.errors import (
    CallCancelled,
    FrameTooLarge,
    PermanentError,
    PoolUnavailable,
    ProtocolError,
)
from cordata.log import request_id
from cordata.pool.child.current import CurrentCall, current
from cordata.pool.child.flow import Flow
from cordata.pool.child.parts import Chunks, List
from cordata.pool.child.session import Noted, Session, Shelf

if TYPE_CHECKING:
    from cordata.pool.child.asynchronous import Asynchronous

Function = Callable[..., Any]
#: Of a message and a traceback, the end of which says most.
_TEXT, _TRACE = 4096, 16384


def find(place: str) -> Function:
    """The function at `module:name`. Raises: ImportError for none; what the import raises."""
    module, _, name = place.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ImportError(f"there is no function {place}")
    return found  # type: ignore[no-any-return]


class Calling:
    """Runs calls for the loop, one after the other."""

    def __init__(self, commands: Mapping[str, Function], flow: Flow, *, worker: str = "") -> None:
        self._commands = commands
        self._flow = flow
        self._shelf = Shelf(worker)
        self._asynchronous: Asynchronous | None = None
        #: The last answer is for the manager, though a client sent the call.
        self.passes = False
        #: The last call failed; it took so long.
        self.failed = False
        self.run_us = 0

    @property
    def asynchronous(self) -> Asynchronous:
        """The event loop; without async commands there is none."""
        if self._asynchronous is None:
            from cordata.pool.child.asynchronous import Asynchronous

            self._asynchronous = Asynchronous(self._flow)
        return self._asynchronous

    def knows(self, command: str) -> bool:
        """Whether there is such a command."""
        return command in self._commands

    def note(self, said: Run | News) -> None:
        """What it says of sessions and globals, also in a run that is not begun."""
        with contextlib.suppress(ProtocolError):
            self._shelf.session_of(said)
        if said.gl is not None:
            self._shelf.take_globals(said.gl)
        if isinstance(said, News):
            self._shelf.lend(said.lent)

    def lent(self, session: str) -> Session | None:
        """That of a call of a loan; None: those may not use it."""
        return self._shelf.lent(session)

    def end_loan(self) -> None:
        """There is none any more, and no session that is lent."""
        self._shelf.end_loan()

    def close(self) -> None:
        """For who outlives it: a child just ends."""
        if self._asynchronous is not None:
            self._asynchronous.close()

    def answer(self, run: Run, began: float) -> bytes:
        """Run the call and give the frame that ends it; chunks have been sent before.

        Raises: nothing but what is meant to end the process, as SystemExit.
        """
        try:
            session = self._shelf.session_of(run)
        except ProtocolError as error:
            return encode(ErrorFrame(id=run.id, m=str(error)))
        if run.gl is not None:
            self._shelf.take_globals(run.gl)
        return self._answer(run, session, began, run.credits)

    def answer_lent(self, run: LentRun, session: Session | None, began: float) -> bytes:
        """The same for a call of a loan, of which `passes`, `failed` and `run_us` tell."""
        self.passes = self.failed = False
        self.run_us = 0
        return self._answer(run, session, began, 0)

    def _answer(
        self, run: Run | LentRun, session: Session | None, began: float, credits: int
    ) -> bytes:
        flow, deadline = self._flow, began + run.d
        flow.begin(run.id, run.n, credits=credits, deadline=deadline)
        call = CurrentCall(
            run, session, self._shelf.globals, deadline, flow.connection.epoch, flow.look
        )
        try:
            function = self._commands.get(run.command)
            if function is None:
                # Another worker may, as during a rolling upgrade, so that it may work later.
                text = f"this worker does not know the command {run.command!r}"
                return encode(ErrorFrame(id=run.id, code=PoolUnavailable.code, m=text))
            value = copy_context().run(self._call, function, run, call, credits)
            delta = _delta(session, call.shared)
            frame = self._success(run, value, delta, began, credits)
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            return self._failure(run, error, began)
        if session is not None and delta is not None:
            session.keep()
        return frame

    def _call(
        self, function: Function, run: Run | LentRun, call: CurrentCall, credits: int
    ) -> object:
        """In a context of its own. Gives the result; of a stream nothing, its parts are sent."""
        current.set(call)
        if run.request_id:  # else it is what it is without a request
            request_id.set(run.request_id)
        value = function(msgpack.decode(run.payload), call.session)
        kind = type(value)
        if kind is CoroutineType:
            value = self.asynchronous.run(value, call.remaining_s())
        elif kind is GeneratorType or kind is AsyncGeneratorType:
            sink = Chunks(self._flow, run.id) if credits else List(self._limit)
            if kind is GeneratorType:
                self._drain(value, sink.add, paced=bool(credits))
            else:
                draining = self.asynchronous.drain(value, sink.add, paced=bool(credits))
                self.asynchronous.run(draining, call.remaining_s())
            return sink.value()
        if credits:
            Chunks(self._flow, run.id).add(value)
            return None
        return value

    def _drain(
        self, values: Generator[Any, None, None], sink: Callable[[Any], None], *, paced: bool
    ) -> None:
        with contextlib.closing(values):
            for value in values:
                if paced and not self._flow.take_credit():
                    raise CallCancelled
                sink(value)

    def _success(
        self, run: Run | LentRun, value: object, delta: Delta | None, began: float, credits: int
    ) -> bytes:
        flow = self._flow
        limit = self._limit
        spent = self.run_us = _microseconds(began)
        if delta is not None and type(run) is LentRun:
            if flow.look():
                raise CallCancelled  # what an abandoned call changed is lost
            return self._pass(run, value, delta, spent)
        if credits:
            return encode(End(id=run.id, x=spent, u=delta), max_bytes=limit)
        # Encoded with its frame, in one go; the field takes whatever MessagePack has.
        result: Any = value
        frame = encode(Result(run.id, result, spent, delta), max_bytes=limit)
        if len(frame) > LARGE and type(run) is LentRun:
            return self._pass(run, value, Delta(), spent)
        return frame

    def _pass(self, run: LentRun, value: object, delta: Delta, spent: int) -> bytes:
        """A result for the client by way of the manager."""
        self.passes = True
        passed = Passed(
            self._flow.connection.borrower.loan,
            run.id,
            delta,
            session=run.session,
            payload=value,  # type: ignore[arg-type]  # as in a result
            x=spent,
        )
        return encode(passed, max_bytes=self._limit)

    def _failure(self, run: Run | LentRun, error: Exception, began: float) -> bytes:
        spent = self.run_us = _microseconds(began)
        self.failed = True
        if isinstance(error, CallCancelled):
            code, text = "cancelled", "the command ended, since nobody waited"
            if self._flow.late:
                code, text = "deadline", "the command ended at its deadline"
            data: dict[str, Any] = {"ran": True} if code == "deadline" else {}
        elif isinstance(error, FrameTooLarge):
            code, text, data = error.code, f"the answer: {error}", {**error.data}
        else:
            code, text = "failed", _clean(_said(error))[:_TEXT]
            data = {
                "type": _name(type(error)),
                "traceback": _clean(_trace(error))[-_TRACE:],
                "permanent": isinstance(error, PermanentError),
            }
        frame = ErrorFrame(id=run.id, code=code, m=text, data=data, x=spent)
        if type(run) is LentRun and len(encode(frame)) > LARGE:  # or it might hold up the child
            frame.m = _end_of(text, LARGE // 8)
            data |= {"traceback": _end_of(data.get("traceback", ""), LARGE // 2)}
        try:
            return encode(frame, max_bytes=self._limit)
        except FrameTooLarge:  # where frames are very small
            data.pop("traceback", None)
            return encode(ErrorFrame(id=run.id, code=code, m=text[:200], data=data, x=spent))

    @property
    def _limit(self) -> int:
        return self._flow.connection.max_bytes


def _delta(session: Session | None, shared: Noted | None) -> Delta | None:
    """Raises: FrameTooLarge for so many changes that they would hold up the manager."""
    delta = None if session is None else session.delta()
    if shared is not None and (shared.set or shared.deleted):
        delta = delta or Delta()
        delta.gset, delta.gdel = shared.set, list(shared.deleted)
    if delta is not None:
        parts = (delta.set, delta.delete, delta.cnt, delta.gset, delta.gdel)
        if sum(map(len, parts)) > MAX_ENTRIES:
            raise FrameTooLarge(f"more than {MAX_ENTRIES} changes of session and globals")
    return delta


def _microseconds(began: float) -> int:
    return int((monotonic() - began) * 1e6)


def _name(kind: type[BaseException]) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def _said(error: Exception) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - the application's own __str__
        return f"({type(second).__name__} in its __str__)"


def _trace(error: Exception) -> str:
    """The traceback without our own frames, which are the first ones."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code in _OWN:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


_OWN = {Calling._answer.__code__, Calling._call.__code__, Calling._drain.__code__}


def _end_of(text: str, size: int) -> str:
    """The last `size` bytes of it as UTF-8."""
    return text.encode()[-size:].decode(errors="ignore")


def _clean(text: str) -> str:
    """As UTF-8 can say it."""
    return text.encode(errors="backslashreplace").decode()
