"""The pool of a test: the client of `ctx.pool`, whose commands run in the test's own process.

InlinePool (client) -> InlineExchange (queue, sessions) -> InlineChild (a thread)
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from uuid import uuid4

from cordata.app import App
from cordata.config import Config
from cordata.config.pool import PoolConfig
from cordata.core.frame import Splitter, TooLarge
from cordata.core.pool.codec import encode, to_client
from cordata.core.pool.globals import Globals
from cordata.core.pool.message import (
    CallFrame,
    Cancel,
    Chunk,
    Credit,
    Delta,
    End,
    ErrorFrame,
    GlobalOp,
    Message,
    Reply,
    Result,
    SessionOp,
    ToClient,
)
from cordata.core.pool.order import GlobalsCopy, Run, SessionCopy
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import SessionLimits
from cordata.core.pool.spec import ChildSpec
from cordata.errors import (
    CallCancelled,
    CommandUnknown,
    DeadlineExceeded,
    PoolClosed,
    PoolError,
    SessionNotFound,
    WorkerCrashed,
)
from cordata.factory import call_timeout_of
from cordata.pool.child.calling import Calling, find
from cordata.pool.child.connection import Connection
from cordata.pool.child.flow import Flow
from cordata.pool.client.alarm import Alarm
from cordata.pool.client.client import Client
from cordata.pool.client.door import Door
from cordata.pool.client.request import Request
from cordata.pool.client.wire import error_of
from cordata.pool.server.answers import answer_global, answer_session


class InlinePool(Client):
    """As Client, without processes: `@app.child_init` and commands run in one thread, one call
    after the other, with the payloads, sessions, errors and streams of a pool.

    Sessions and globals live as long as the test, whose clock ends them; deadlines go by the real
    time. What a command prints is the test's output. Nothing can be killed: a command that hangs
    holds up those after it, and one that ends its process ends the test's.
    """

    def __init__(self, app: App, config: Config, now: Callable[[], float]) -> None:
        super().__init__(timeout=call_timeout_of(config))
        places = {name: command.at for name, command in app.commands.items()}
        child = InlineChild(places, app.child_inits, config.pool.max_frame_bytes)
        self._inline = self._exchange = InlineExchange(child, config.pool, list(places), now)

    def crash(self, command: str, times: int = 1) -> None:
        """Let the process die in the next calls of a command."""
        self._inline.crashes[command] += times

    async def close(self) -> None:
        """End every call, wait for the command in hand."""
        if not self._inline.closed:
            self._inline.close()
            await asyncio.to_thread(self._inline.join)


class InlineDoor(Door):
    """Makes it when somebody calls."""

    def __init__(self, make: Callable[[], InlinePool]) -> None:
        super().__init__()
        self._make = make
        self._pool: InlinePool | None = None

    @property
    def client(self) -> InlinePool:
        """The pool of the test."""
        if self._pool is None:
            self._pool = self._make()
        return self._pool

    async def close(self) -> None:
        """End it, if there is one."""
        if self._pool is not None:
            await self._pool.close()


class InlineExchange:
    """In place of a manager: one call after the other, with the sessions' own rules."""

    def __init__(
        self, child: InlineChild, config: PoolConfig, known: Sequence[str], now: Callable[[], float]
    ):
        self._child, self._known, self._now = child, frozenset(known), now
        self._retries = config.retries
        limits = {key: getattr(config, key) for key in SessionLimits.__dataclass_fields__}
        self._sessions = SessionTable(
            SessionLimits(**limits),
            new_id=lambda: uuid4().hex,
            to_wall_us=lambda at: round(at * 1e6),
        )
        self._globals = Globals(config.max_globals_bytes)
        self._waiting: deque[Request] = deque()
        self._running: Request | None = None
        #: The running one, unless its caller was answered before.
        self._awaited: Request | None = None
        self._last_id = 0
        self._alarm = Alarm(self._due)
        self.loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "pool")
        self.loop.add_reader(self._child.socket, self._readable)
        #: How often a command's process is to die, by command.
        self.crashes: Counter[str] = Counter()
        self.closed = False

    def submit(self, request: Request) -> None:
        """Run it after those before it, or answer it. Raises: PoolClosed."""
        if self.closed:
            raise PoolClosed("the client is closed")
        self._last_id += 1
        message = request.message
        request.id = message.id = self._last_id
        if isinstance(message, CallFrame):
            self._offer(request, message)
        elif isinstance(message, SessionOp):
            _give(request, answer_session(self._sessions, message, self._now()))
        elif isinstance(message, GlobalOp):
            _give(request, answer_global(self._globals, message))
        else:
            request.failed(PoolError("there is no manager in a test"))
        self._forget_changes()

    def cancel(self, request: Request, *, hard: bool) -> None:
        """It is told at once, as in a pool; nothing is killed here."""
        if self._leave(request):
            request.failed(CallCancelled("the caller cancelled the call"))

    def abandon(self, request: Request) -> None:
        """Nobody waits for it any more."""
        self._leave(request)

    def credit(self, request: Request, count: int) -> None:
        """So many more parts may come."""
        if request is self._awaited:
            self._child.tell(Credit(id=request.id, n=count))

    def close(self) -> None:
        """End every request with PoolClosed."""
        if self.closed:
            return
        self.closed = True
        self._alarm.close()
        self.loop.remove_reader(self._child.socket)
        for request in (*self._waiting, *((self._awaited,) if self._awaited else ())):
            self._leave(request)
            request.failed(PoolClosed("the client was closed"))

    def join(self) -> None:
        """Wait for the command in hand. Blocking; after `close`."""
        self._thread.submit(self._child.close)
        self._thread.shutdown()

    def _offer(self, request: Request, message: CallFrame) -> None:
        if message.command not in self._known:
            request.failed(CommandUnknown(f"the application has no command {message.command!r}"))
        elif message.session and self._sessions.touch(message.session, self._now()) is None:
            request.failed(SessionNotFound(f"there is no session {message.session!r}"))
        else:
            self._alarm.set(request, request.deadline)
            self._waiting.append(request)
            self._next()

    def _next(self) -> None:
        while self._waiting and self._running is None:
            request = self._waiting.popleft()
            message = request.message
            assert isinstance(message, CallFrame)
            if self.crashes[message.command] > 0:
                self.crashes[message.command] -= 1
                self._crash(request, message)
                continue
            try:
                run = self._run_of(message, request.deadline)
            except SessionNotFound as error:
                self._alarm.clear(request)
                request.failed(error)
                continue
            self._running = self._awaited = request
            ending = self.loop.run_in_executor(self._thread, self._child.answer, run)
            ending.add_done_callback(partial(self._ended, request))

    def _crash(self, request: Request, message: CallFrame) -> None:
        if message.idempotent and message.attempts < self._retries:
            message.attempts += 1
            self._waiting.appendleft(request)
            return
        self._alarm.clear(request)
        text = f"the child that ran {message.command!r} died of SIGKILL"
        request.failed(WorkerCrashed(text, signal=9, worker="0"))

    def _run_of(self, message: CallFrame, deadline: float) -> Run:
        copy = None
        if message.session:
            session = self._sessions.touch(message.session, self._now())
            if session is None:
                raise SessionNotFound(f"there is no session {message.session!r}")
            copy = SessionCopy(
                id=session.id,
                v=session.version,
                full=dict(session.data),
                cnt=dict(session.counters),
                wk=session.worker,
            )
        return Run(
            id=message.id,
            n=message.id,
            command=message.command,
            payload=message.payload,
            d=max(0.0, deadline - monotonic()),
            credits=message.credits,
            request_id=message.request_id,
            s=copy,
            gl=GlobalsCopy(v=self._globals.version, set=dict(self._globals.data), full=True),
        )

    def _ended(self, request: Request, ending: asyncio.Future[bytes]) -> None:
        if self.closed:
            return
        self._readable()
        awaited, self._running, self._awaited = self._awaited is request, None, None
        error = ending.exception()
        if awaited:
            self._alarm.clear(request)
            if error is None:
                self._settle(request, to_client.decode(ending.result()))
            else:
                request.failed(
                    error if isinstance(error, Exception) else WorkerCrashed(repr(error))
                )
        self._next()

    def _settle(self, request: Request, message: ToClient) -> None:
        if isinstance(message, Result | End) and message.u is not None:
            try:
                self._apply(request, message.u)
            except PoolError as error:
                request.failed(error)
                return
        _give(request, message)

    def _apply(self, request: Request, change: Delta) -> None:
        """What the call changed. Raises: SessionQuotaExceeded."""
        if change.gset or change.gdel:
            self._globals.change(change.gset, change.gdel)
        assert isinstance(request.message, CallFrame)
        if request.message.session:
            self._sessions.apply(request.message.session, change, self._now())
        self._forget_changes()

    def _forget_changes(self) -> None:
        """A manager writes them down."""
        self._sessions.changes.clear()
        self._globals.changes.clear()

    def _readable(self) -> None:
        for message in self._child.heard():
            if isinstance(message, Chunk) and self._awaited is not None:
                self._awaited.chunk(message.payload)

    def _leave(self, request: Request) -> bool:
        """Whether it was waited for until now."""
        if request is self._awaited:
            self._awaited = None
            self._child.tell(Cancel(id=request.id))
        elif request in self._waiting:
            self._waiting.remove(request)
        else:
            return False
        self._alarm.clear(request)
        return True

    def _due(self, request: Request) -> None:
        ran = request is self._awaited
        if self._leave(request):
            request.failed(DeadlineExceeded("the call's deadline passed", ran=ran))


def _give(request: Request, message: Message) -> None:
    """The last answer."""
    if isinstance(message, Result):
        request.answered(message.payload)
    elif isinstance(message, Reply):
        request.replied(message)
    elif isinstance(message, End):
        request.ended()
    elif isinstance(message, ErrorFrame):
        request.failed(error_of(message))


class InlineChild:
    """What a child does, less its process: all of it in one thread, but `tell` and `heard`."""

    def __init__(self, commands: Mapping[str, str], inits: Sequence[str], max_bytes: int) -> None:
        self._places, self._inits = commands, inits
        spec = ChildSpec(worker="0", socket="", path=(), commands={}, max_frame_bytes=max_bytes)
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self._channels = socket.socketpair()
        self._connection = Connection(spec)
        self._connection.socket, self._connection.epoch = theirs, "0" * 16
        self._splitter = Splitter(max_bytes)
        self._calling: Calling | None = None

    def answer(self, run: Run) -> bytes:
        """The call's last frame. Raises: what importing the commands, or an init, raises."""
        if self._calling is None:
            commands = {name: find(place) for name, place in self._places.items()}
            calling = Calling(commands, Flow(self._connection, self._channels[0].fileno()))
            for place in self._inits:
                made = find(place)()
                if inspect.iscoroutine(made):
                    calling.asynchronous.run(made)
            self._calling = calling
        return self._calling.answer(run, monotonic())

    def tell(self, message: Message) -> None:
        """What a manager says while a call runs."""
        with contextlib.suppress(OSError):
            self.socket.send(encode(message))

    def heard(self) -> list[ToClient]:
        """The parts that came by now."""
        found: list[ToClient] = []
        with contextlib.suppress(BlockingIOError):
            while data := self.socket.recv(1 << 18):
                for frame in self._splitter.feed(data):
                    assert not isinstance(frame, TooLarge)
                    found.append(to_client.decode(frame))
        return found

    def close(self) -> None:
        """Nothing runs any more."""
        if self._calling is not None:
            self._calling.close()
        self._connection.lose()
        for one in (self.socket, *self._channels):
            one.close()
