"""The pool's sync client: the same calls, one at a time, for code without an event loop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any
from weakref import WeakSet

from msgspec import Raw, msgpack

from cordata.core.pool.message import (
    Ask,
    CallFrame,
    Chunk,
    Credit,
    ErrorFrame,
    GlobalOp,
    Reply,
    Result,
    SessionOp,
    ToClient,
)
from cordata.errors import (
    DeadlineExceeded,
    FrameTooLarge,
    PoolClosed,
    PoolRestarted,
    ProtocolError,
)
from cordata.pool.client.pipe import Pipe, PipeLost, Question, dialled
from cordata.pool.client.syncsessions import SyncGlobals, SyncSessions
from cordata.pool.client.wire import (
    ANSWER_GRACE_S,
    CREDIT_EVERY_S,
    DEFAULT_PATH,
    DEFAULT_TIMEOUT_S,
    DIAL_MIN_S,
    call_of,
    check_question,
    deadline_of,
    decoder_of,
    error_of,
    expected,
    hello_of,
    may_repeat,
    window_of,
)


class SyncClient:
    """As `Client`, blocking: whoever calls waits. Threads may share one, and take turns then.

    A process that is forked (multiprocessing, gunicorn's `preload_app`) connects anew at its first
    call; the streams of its parent are not its own.

    A stream has a connection of its own, and ends it when it is left. `hard_cancel`: a call that
    is left without its answer, as by Ctrl-C, is cancelled as by `Call.cancel(hard=True)`.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        name: str = "",
        timeout: float | Callable[[str], float] = DEFAULT_TIMEOUT_S,
        operator: bool = False,
        hard_cancel: bool = False,
    ) -> None:
        self._path = os.fspath(path or DEFAULT_PATH)
        self._name, self._operator, self._hard = name, operator, hard_cancel
        self._timeout_of = timeout if callable(timeout) else lambda _: timeout
        self._turn = threading.RLock()
        self._pipe: Pipe | None = None
        #: Connections of streams.
        self._streams: set[Pipe] = set()
        self._closed = False
        _clients.add(self)
        self.sessions = SyncSessions(self._ask)
        self.globals = SyncGlobals(self._ask)

    def execute(
        self,
        command: str,
        payload: object = None,
        *,
        session: str = "",
        timeout: float | None = None,
        queue_timeout: float | None = None,
        idempotent: bool = False,
        priority: int = 0,
        type: Any = None,
    ) -> Any:
        """As `Client.execute`. Raises the same."""
        timeout_s = self._timeout_of(command) if timeout is None else timeout
        frame = call_of(
            command,
            payload,
            timeout_s=timeout_s,
            session=session,
            queue_timeout_s=queue_timeout,
            idempotent=idempotent,
            priority=priority,
        )
        answer = self._answer(frame, deadline_of(timeout_s))
        return decoder_of(type)(expected(answer, Result).payload)

    def stream(
        self,
        command: str,
        payload: object = None,
        *,
        credit: int = 16,
        session: str = "",
        timeout: float | None = None,
        queue_timeout: float | None = None,
        idempotent: bool = False,
        priority: int = 0,
        type: Any = None,
    ) -> Generator[Any, None, None]:
        """As `Client.stream`: closing the generator cancels the call. Raises the same."""
        timeout_s = self._timeout_of(command) if timeout is None else timeout
        frame = call_of(
            command,
            payload,
            timeout_s=timeout_s,
            session=session,
            queue_timeout_s=queue_timeout,
            idempotent=idempotent,
            priority=priority,
            credits=window_of(credit),
        )
        decode = decoder_of(type)
        for part in self._parts(frame, deadline_of(timeout_s)):
            yield decode(part)

    def status(self) -> dict[str, Any]:
        """What the manager tells of itself. For operators, as those below."""
        return dict(self._order(Ask(id=0, op="status")))

    def list_sessions(self, *, after: str = "", limit: int = 100) -> dict[str, Any]:
        """Ids, sizes, last use and end behind the id `after`; `next` is where to go on."""
        return dict(self._order(Ask(id=0, op="sessions", after=after, limit=limit)))

    def drain(self, worker: str, on: bool = True) -> Any:
        """Let a worker take no more calls, or (`on=False`) take them again."""
        return self._order(Ask(id=0, op="drain" if on else "undrain", name=worker))

    def recycle(self, worker: str) -> Any:
        """Replace a worker's child, as soon as the new one is warm."""
        return self._order(Ask(id=0, op="recycle", name=worker))

    def close(self) -> None:
        """End the connection, after the call in hand. Twice is once."""
        with self._turn:
            self._closed = True
            self._leave()

    def _order(self, ask: Ask) -> Any:
        return msgpack.decode(self._ask(ask).payload)

    def _ask(self, message: SessionOp | GlobalOp | Ask) -> Reply:
        check_question(message)
        return expected(self._answer(message, deadline_of(self._timeout_of(""))), Reply)

    def _answer(self, message: Question, deadline: float) -> ToClient:
        """The one answer, on the connection that all of these use in turn."""
        try:
            if not self._turn.acquire(timeout=max(0.0, deadline - monotonic())):
                text = "other threads had the client until the deadline"
                raise DeadlineExceeded(text, ran=False)
            while True:
                if self._closed:
                    raise PoolClosed("the client is closed")
                pipe = self._pipe = self._pipe or self._dialled(deadline)
                answer = None
                try:
                    answer = _first(pipe, message, deadline)
                    return _last(answer)
                except _AgainError:
                    pipe.leaving = True
                    _pause(deadline)
                finally:
                    # Without one, as when interrupted, it may still come, and is nobody's.
                    if pipe.leaving or answer is None:
                        self._leave()
        finally:
            # An interrupt may have come right after it was taken, or before.
            with suppress(RuntimeError):
                self._turn.release()

    def _parts(self, message: CallFrame, deadline: float) -> Iterator[Raw]:
        while True:
            if self._closed:
                raise PoolClosed("the client is closed")
            pipe = self._dialled(deadline)
            self._streams.add(pipe)
            try:
                yield from _parts(pipe, message, deadline)
                return
            except _AgainError:
                _pause(deadline)
            finally:
                self._streams.discard(pipe)
                pipe.close(hard=self._hard)

    def _dialled(self, deadline: float) -> Pipe:
        return dialled(self._path, hello_of(self._name, operator=self._operator), deadline)

    def _forked(self) -> None:
        """In a forked child: the connections are the parent's, and so is who holds the lock."""
        self._turn = threading.RLock()
        pipe, self._pipe = self._pipe, None
        for one in (pipe, *self._streams):
            if one is not None:
                one.disown()
        self._streams.clear()

    def _leave(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close(hard=self._hard)

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_clients: WeakSet[SyncClient] = WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_after_fork)


class _AgainError(Exception):
    """It did not run, or may run twice: once more, on another connection."""


def _first(pipe: Pipe, message: Question, deadline: float) -> ToClient:
    """Send it, and give the first thing that comes back. Raises: _AgainError and what it means
    when nothing does.
    """
    if isinstance(message, CallFrame):
        message.timeout_s = max(0.0, deadline - monotonic())
    try:
        pipe.ask(message, deadline)
    except PipeLost:
        raise _AgainError() from None
    except TimeoutError:
        pipe.leaving = True
        ran = isinstance(message, CallFrame) and message.attempts > 0  # under a former manager
        raise DeadlineExceeded("the pool's manager did not take it", ran=ran) from None
    return _next(pipe, message, deadline, repeat=may_repeat(message))


def _next(pipe: Pipe, message: Question, deadline: float, *, repeat: bool) -> ToClient:
    """The next thing that comes."""
    try:
        answer = pipe.receive(deadline + ANSWER_GRACE_S)
    except PipeLost as error:
        pipe.leaving = True
        if not repeat:
            text = f"the pool was lost while it may have been running ({error})"
            raise PoolRestarted(text) from None
        if isinstance(message, CallFrame):
            message.attempts += 1
        raise _AgainError() from None
    except TimeoutError:
        pipe.leaving = True
        raise DeadlineExceeded("no answer came before the deadline") from None
    except (FrameTooLarge, ProtocolError):
        pipe.leaving = True
        raise
    id = getattr(answer, "id", None)
    if id is None:
        pipe.leaving = True  # it speaks of the connection
    elif id != message.id:
        pipe.leaving = True
        raise ProtocolError(f"an answer to question {id} came in place of one to {message.id}")
    return answer


def _parts(pipe: Pipe, message: CallFrame, deadline: float) -> Iterator[Raw]:
    """The parts of one stream on a connection of its own."""
    answer, taken, told_at = _first(pipe, message, deadline), 0, monotonic()
    while isinstance(answer, Chunk):
        yield answer.payload
        taken += 1
        if 2 * taken >= message.credits or monotonic() - told_at >= CREDIT_EVERY_S:
            with suppress(PipeLost, TimeoutError):  # the reader finds out, after what came before
                pipe.send(Credit(id=message.id, n=taken), deadline)
            taken, told_at = 0, monotonic()
        answer = _next(pipe, message, deadline, repeat=False)
    if isinstance(_last(answer), Result):
        yield expected(answer, Result).payload


def _last(answer: ToClient) -> ToClient:
    """The last answer. Raises: _AgainError, and what it says went wrong."""
    if not isinstance(answer, ErrorFrame):
        return answer
    if answer.code == "not_run":
        raise _AgainError()
    raise error_of(answer)


def _pause(deadline: float) -> None:
    time.sleep(max(0.0, min(DIAL_MIN_S, deadline - monotonic())))
