"""The pool's async client: what handlers, requests and programs call."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any
from weakref import WeakSet

from msgspec import msgpack

from cordata.core.pool.message import Ask, GlobalOp, Reply, SessionOp
from cordata.pool.client.borrowing import Borrowing
from cordata.pool.client.request import Call, Exchanging, Request, Stream
from cordata.pool.client.sessions import Globals, Sessions
from cordata.pool.client.wire import (
    DEFAULT_PATH,
    DEFAULT_TIMEOUT_S,
    call_of,
    check_question,
    deadline_of,
    decoder_of,
    hello_of,
    window_of,
)


class Client:
    """Calls commands in the pool's processes: one connection, however many calls.

    It connects at its first use, to the manager's socket at `path`, and again when it lost the
    connection: calls wait meanwhile. A call declared `idempotent`, and one that did not start, is
    then sent again; any other that was under way raises PoolRestarted. For one event loop; a
    process that is forked connects anew, from an event loop of its own.

    `timeout`: seconds until the deadline of a call that names none; a function gives them by
    command. `max_waiting`: calls that may wait here for a manager. `operator`: may ask for the
    status and drain workers, which only the manager's own user may.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        name: str = "",
        timeout: float | Callable[[str], float] = DEFAULT_TIMEOUT_S,
        max_waiting: int = 10_000,
        operator: bool = False,
    ) -> None:
        self._timeout_of = timeout if callable(timeout) else lambda _: timeout
        self._new_exchange = partial(
            Borrowing,
            os.fspath(path or DEFAULT_PATH),
            lambda: hello_of(name, operator=operator, borrows=True),
            max_waiting=max_waiting,
        )
        self._exchange: Exchanging = self._new_exchange()
        _clients.add(self)
        self.sessions = Sessions(self._ask)
        self.globals = Globals(self._ask)

    async def execute(
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
        """Run a command in one of the pool's processes and give its result.

        `timeout`: seconds for all of it, waiting and running. `queue_timeout`: of these, at most
        so many until it runs. `idempotent`: it may run more than once, and does when its process
        dies. `priority`: 0 to 9, higher goes first. `type`: what the result is converted to.

        Raises: CommandFailed (CommandRefused) when the command raised; DeadlineExceeded,
        QueueTimeout, WorkerCrashed, CommandPoisoned, CommandUnknown, PoolSaturated,
        PoolUnavailable, PoolRestarted, PoolClosed, SessionNotFound, PreferredWorkerBusy,
        FrameTooLarge; TypeError for a payload that MessagePack does not know. Cancelling it
        cancels the call: it does not start any more; when it runs, it is told.
        """
        return await self._start(
            command, payload, session, timeout, queue_timeout, idempotent, priority, type
        )

    def start(
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
    ) -> Call:
        """As `execute`, without waiting: await the Call, or cancel it. Raises: PoolClosed,
        PoolSaturated, TypeError; the rest is raised by awaiting the Call.
        """
        return self._start(
            command, payload, session, timeout, queue_timeout, idempotent, priority, type
        )

    def _start(
        self,
        command: str,
        payload: object,
        session: str,
        timeout: float | None,
        queue_timeout: float | None,
        idempotent: bool,
        priority: int,
        type: Any,
    ) -> Call:
        timeout_s = self._timeout_of(command) if timeout is None else timeout
        frame = call_of(command, payload, timeout_s, session, queue_timeout, idempotent, priority)
        exchange = self._exchange
        call = Call(frame, exchange, deadline_of(timeout_s), decoder_of(type))
        exchange.submit(call)
        return call

    async def stream(
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
    ) -> AsyncGenerator[Any, None]:
        """The parts that a command yields, as they come; no more than `credit` lie unread.

        Whoever does not read on holds up the command, whose deadline stands. Use
        `contextlib.aclosing` to leave early: that cancels the call. Raises: as `execute`; a
        stream of which a part was read is not begun again.
        """
        timeout_s = self._timeout_of(command) if timeout is None else timeout
        credits = window_of(credit)
        frame = call_of(
            command, payload, timeout_s, session, queue_timeout, idempotent, priority, credits
        )
        stream = Stream(frame, self._exchange, deadline_of(timeout_s), decoder_of(type))
        self._exchange.submit(stream)
        try:
            while part := await stream.next():
                yield part[0]
        finally:
            self._exchange.abandon(stream)

    async def status(self) -> dict[str, Any]:
        """What the manager tells of itself. For operators, as those below."""
        return dict(await self._order(Ask(id=0, op="status")))

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> dict[str, Any]:
        """Ids, sizes, last use and end behind the id `after`; `next` is where to go on."""
        return dict(await self._order(Ask(id=0, op="sessions", after=after, limit=limit)))

    async def drain(self, worker: str, on: bool = True) -> Any:
        """Let a worker take no more calls, or (`on=False`) take them again."""
        return await self._order(Ask(id=0, op="drain" if on else "undrain", name=worker))

    async def recycle(self, worker: str) -> Any:
        """Replace a worker's child, as soon as the new one is warm."""
        return await self._order(Ask(id=0, op="recycle", name=worker))

    async def close(self) -> None:
        """End the connection; calls that are under way raise PoolClosed. Twice is once."""
        self._exchange.close()

    def _forked(self) -> None:
        """In a forked child: connections and requests are the parent's."""
        former = self._exchange
        if isinstance(former, Borrowing) and not former.closed:
            self._exchange = self._new_exchange()
            former.disown()

    async def _order(self, ask: Ask) -> Any:
        return msgpack.decode((await self._ask(ask)).payload)

    async def _ask(self, message: SessionOp | GlobalOp | Ask) -> Reply:
        check_question(message)
        request = Request(message, self._exchange, deadline_of(self._timeout_of("")))
        self._exchange.submit(request)
        return await request  # type: ignore[no-any-return]

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


_clients: WeakSet[Client] = WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_after_fork)
