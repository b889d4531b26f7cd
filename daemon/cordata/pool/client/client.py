"""The pool's async client: what handlers, requests and programs call.

Client.execute -> Dispatcher.submit -> Scheduler.choose -> Connection.send_call --> child
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Unpack
from weakref import WeakSet

from msgspec import Raw
from msgspec.structs import asdict

from cordata.config.pool import DEFAULT_POOL, PoolConfig, pool_of_command
from cordata.errors import (
    DeadlineExceeded,
    PoolClosed,
    PoolError,
    PoolRestarted,
    PoolUnavailable,
    ProtocolError,
)
from cordata.metrics.process import Outcomes
from cordata.pool.client.call import Call, CallOptions, CallRunner, Stream
from cordata.pool.client.dispatcher import Dispatcher
from cordata.pool.client.scheduler import names
from cordata.pool.client.session_api import Globals, Sessions, may_repeat
from cordata.pool.client.values import (
    DEFAULT_PATH,
    bounded,
    check_call,
    current_request,
    decoder_of,
    encode_value,
    error_of,
    unpack,
)
from cordata.pool.shared import protocol
from cordata.pool.shared.paths import CONTROL
from cordata.pool.shared.protocol import NO_KEYWORDS, CommandOptions
from cordata.trace import carried

#: Pause before the client looks for a worker again.
_AGAIN_S = 0.05
#: A worker that has not answered a session request for this long is silent: the next one is asked.
_SILENT_S = 1.0
#: Calls of a `map` that are under way at a time.
MAP_WINDOW = 64


_DEFAULTS = PoolConfig()


class Client:
    """Calls commands in the pool's processes, over one connection to each child.

    It looks for children below `path` at its first use, and notices when they come and go. If a
    child dies, a call that had not begun goes to another child; a call that had begun runs again if
    it is `idempotent`, else it raises ChildCrashed. For one event loop; a forked process connects
    again, from its own event loop.

    `timeout`: seconds until the deadline, for calls and commands that set none. `pools`: the
    configuration of each pool, "default" first; without it the defaults of `[pool]` apply, and a
    command runs in the pool whose children know it.
    `options`: those of `@app.command`, by command; for other commands the children send theirs.
    `metrics`: where the process counts calls, by command.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        timeout: float | None = None,
        pools: Mapping[str, PoolConfig] | None = None,
        options: Mapping[str, CommandOptions] | None = None,
        metrics: Mapping[str, Outcomes] | None = None,
    ) -> None:
        self._path = Path(path or DEFAULT_PATH)
        self._pools = dict(pools or {})
        self._config = self._pools.get(DEFAULT_POOL, _DEFAULTS)
        self._options = options or {}
        self._metrics = metrics or {}
        self._timeout = timeout
        self._runner: CallRunner = self._new_runner()
        forking.add(self)
        self.sessions = Sessions(self._ask)
        self.globals = Globals(self._ask)

    async def execute(
        self, command: str, payload: object = None, **options: Unpack[CallOptions]
    ) -> Any:
        """Run a command with one argument in one of the pool's processes; returns its result.

        Options: `session`, `timeout`, `queue_timeout`, `idempotent`, `retries`, `priority` and
        `type`, see `CallOptions`. Defaults are those of `@app.command`, then of `[pool]`.

        Raises: CommandFailed (CommandRefused) when the command raised, with the exception itself as
        its `__cause__` where this process has imported its class; DeadlineExceeded, QueueTimeout,
        ChildCrashed, CommandPoisoned, CommandUnknown, PoolSaturated, PoolUnavailable, PoolClosed,
        SessionNotFound, PreferredWorkerBusy, FrameTooLarge; TypeError for a payload that
        MessagePack does not know. Cancelling it cancels the call: a waiting call never starts; a
        running command can see it (`current_call().cancelled()`).
        """
        return await self.start_encoded(command, encode_value((payload,)), **options)

    def start(self, command: str, payload: object = None, **options: Unpack[CallOptions]) -> Call:
        """As `execute`, without waiting: await the Call, or cancel it. Raises: PoolClosed,
        PoolSaturated, TypeError; the rest is raised by awaiting the Call.
        """
        return self.start_encoded(command, encode_value((payload,)), **options)

    def submit(self, command: str, /, *arguments: object, **keywords: object) -> Call:
        """Run a command with these arguments, as `concurrent.futures.Executor.submit` does; its
        options are those of `@app.command`. Await the Call. Raises: as `start`.
        """
        encoded_keywords = encode_value(keywords) if keywords else NO_KEYWORDS
        return self.start_encoded(command, encode_value(arguments), encoded_keywords)

    async def map(
        self, command: str, items: Iterable[object] | AsyncIterable[object], *, window: int = 0
    ) -> AsyncGenerator[Any, None]:
        """Run a command once for each item; yields the results in the order of the items.

        At most `window` calls (default 64) are under way at a time: items are taken as results are
        read. The first failure is raised, and cancels the other calls. To leave early, use
        `contextlib.aclosing`: it cancels them, too.
        """
        pending: list[Call] = []
        source = _items(items)
        window = window or MAP_WINDOW
        try:
            async for item in source:
                pending.append(self.submit(command, item))
                if len(pending) >= window:
                    yield await pending.pop(0)
            while pending:
                yield await pending.pop(0)
        finally:
            for call in pending:
                call.cancel()

    async def stream(
        self,
        command: str,
        payload: object = None,
        *,
        credit: int = 16,
        **options: Unpack[CallOptions],
    ) -> AsyncGenerator[Any, None]:
        """The parts that a command yields, as they come; at most `credit` parts wait unread.

        A slow reader delays the command, and its deadline stays the same. To leave early, use
        `contextlib.aclosing`: it cancels the call. Raises: as `execute`; a stream does not run
        again after one of its parts was received.
        """
        stream = Stream(credit)
        call = self.start_encoded(command, encode_value((payload,)), stream=stream, **options)
        try:
            while part := await stream.next(call):
                yield part[0]
        finally:
            call.cancel()

    def start_encoded(
        self,
        command: str,
        arguments: Raw,
        keywords: Raw = NO_KEYWORDS,
        *,
        stream: Stream | None = None,
        session: str = "",
        timeout: float | None = None,
        queue_timeout: float | None = None,
        idempotent: bool | None = None,
        retries: int | None = None,
        priority: int = 0,
        type: Any = None,
    ) -> Call:
        """As `start`, with arguments that are MessagePack already: an array and a map."""
        config, runner = self._config_of(command), self._runner
        deadline_is_default = False
        if timeout is None:
            options = runner.options.get(command)
            deadline_is_default = options is None
            timeout = options.timeout_s if options is not None else None
            if timeout is None:
                timeout = self._default_timeout_s(config)
        if queue_timeout is None and config.queue_timeout_s:
            queue_timeout = config.queue_timeout_s
        check_call(command, session, timeout, queue_timeout, priority)
        now, cause = monotonic(), current_request()
        call = Call(
            runner,
            runner.loop.create_future(),
            command,
            arguments,
            keywords,
            now,
            now + bounded(timeout),
            inf if queue_timeout is None else now + queue_timeout,
            session,
            idempotent,
            retries,
            priority,
            cause,
            unpack if type is None else decoder_of(type),
            stream,
            deadline_is_default,
            carried(cause),
        )
        if stream is not None:
            call.add_done_callback(stream.wake)
        runner.submit(call)
        return call

    def _config_of(self, command: str) -> PoolConfig:
        if len(self._pools) > 1:
            return self._pools.get(pool_of_command(self._pools, command), _DEFAULTS)
        return self._config

    def _default_timeout_s(self, config: PoolConfig) -> float:
        return config.call_timeout_s if self._timeout is None else self._timeout

    async def status(self) -> dict[str, Any]:
        """The status of all workers and their children, by pool and name, and the number of
        `sessions`, which is missing if no worker could count them.

        A worker that does not answer in time has `answers` False, and nothing else is known of it.
        One that has ended is left out.
        """
        deadline, control = self._control_deadline(), self._dispatcher().control
        asked: dict[tuple[str, str], tuple[Path, asyncio.Future[Any], asyncio.Future[Any]]] = {}
        found: list[dict[str, Any]] = []
        for (pool, worker), path in list(self._dispatcher().workers.items()):
            try:
                asked[pool, worker] = (
                    path,
                    control.ask(path, protocol.StatusRequest(number=0)),
                    control.ask(path, protocol.GlobalRequest(number=0, operation="stats")),
                )
            except BlockingIOError:  # it has not read for long
                found.append(_silent(pool, worker))
            except OSError:
                pass  # it has ended
        sessions: dict[str, Any] = {}
        for (pool, worker), (path, status, stats) in asked.items():
            try:
                answer = await _answer(status, path, deadline)
                children = [*map(asdict, answer.children)]
                found.append({**asdict(answer), "children": children, "answers": True})
                with suppress(PoolError):  # its journal says why
                    sessions = {"sessions": (await _answer(stats, path, deadline)).counts}
            except DeadlineExceeded:
                found.append(_silent(pool, worker))
            except OSError:
                pass
        found.sort(key=lambda one: (one["pool"], len(one["worker"]), one["worker"]))
        return {"workers": found, **sessions}

    async def list_sessions(self, *, after: str = "", limit: int = 100) -> dict[str, Any]:
        """The next sessions by id after `after`, without data; `next` is the `after` of the next
        page, "" at the end.
        """
        found = await self.sessions.page(after, limit)
        following = found[-1].id if len(found) == limit else ""
        return {"sessions": [asdict(one) for one in found], "next": following}

    async def drain(self, worker: str, on: bool = True) -> Any:
        """Stop new calls to a worker, or allow them again (`on=False`). For operators."""
        return await self._order(worker, "drain" if on else "undrain")

    async def recycle(self, worker: str) -> Any:
        """Replace a worker's children, as soon as the new ones are warm. For operators."""
        return await self._order(worker, "recycle")

    async def close(self) -> None:
        """Close the connections; calls under way raise PoolClosed. May be called twice."""
        self._runner.close()

    async def _ask(
        self, request: protocol.SessionRequest | protocol.GlobalRequest
    ) -> protocol.Reply:
        """Ask one worker; if it is silent or goes away, ask the next, unless the change may have
        been made. The first answer counts. A worker that has not answered others is asked last.
        """
        deadline, repeats = self._control_deadline(), may_repeat(request)
        while True:
            control = self._dispatcher().control
            paths = deque(sorted(self._dispatcher().workers.values(), key=control.silent_s))
            asked: dict[asyncio.Future[Any], Path] = {}
            while paths or asked:
                if paths and (repeats or not asked):
                    path = paths.popleft()
                    try:
                        asked[control.ask(path, request)] = path
                    except OSError:
                        continue  # nothing was sent
                wait_s = max(0.0, deadline - monotonic())
                if paths and repeats:
                    wait_s = min(wait_s, _SILENT_S)
                done, _ = await asyncio.wait(
                    asked, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done and monotonic() < deadline:
                    continue
                first = next(iter(done or asked))
                try:
                    reply: protocol.Reply = await _answer(first, asked.pop(first), deadline)
                except ConnectionError:
                    if repeats:
                        continue
                    text = "the worker went away; the change may have been made"
                    raise PoolRestarted(text) from None
                for session in reply.sessions:
                    self._dispatcher().remember(session.id, session.worker, session.affinity)
                return reply
            left_s = deadline - monotonic()
            if left_s <= 0:
                problem = self._dispatcher().problem or f"there is no worker below {self._path}"
                raise PoolUnavailable(f"no worker of the pool answers: {problem}")
            await asyncio.sleep(min(_AGAIN_S, left_s))

    async def _order(self, worker: str, order: Any) -> dict[str, Any]:
        for (_, name), path in self._dispatcher().workers.items():
            if name == worker:
                request = protocol.WorkerOrder(number=0, order=order)
                try:
                    asked = self._dispatcher().control.ask(path, request)
                    await _answer(asked, path, self._control_deadline())
                except OSError as error:
                    raise PoolUnavailable(f"worker {worker} is not connected: {error}") from None
                return {"worker": worker}
        there = names(name for _, name in self._dispatcher().workers) or "none"
        raise PoolUnavailable(f"worker {worker} is not connected (there are: {there})")

    def _control_deadline(self) -> float:
        """When a request to a worker ends that names no timeout."""
        return monotonic() + bounded(self._default_timeout_s(self._config))

    def _dispatcher(self) -> Dispatcher:
        runner = self._runner
        if not isinstance(runner, Dispatcher):
            raise ProtocolError("there is no worker in a test")
        if runner.closed:
            raise PoolClosed("the client is closed")
        runner.open()
        return runner

    def _new_runner(self) -> CallRunner:
        return Dispatcher(self._path, self._pools, self._options, self._metrics)

    def _forked(self) -> None:
        """Start anew in a forked child: connections and calls belong to the parent."""
        former = self._runner
        self._metrics = {}  # two processes cannot add to one counter
        if isinstance(former, Dispatcher) and not former.closed:
            self._runner = self._new_runner()
            former.close(forked=True)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _silent(pool: str, worker: str) -> dict[str, Any]:
    """The status of a worker that does not answer."""
    unknown = protocol.WorkerStatus(number=0, worker=worker, pool=pool)
    return {**asdict(unknown), "answers": False}


async def _answer(asked: asyncio.Future[Any], path: Path, deadline: float) -> Any:
    """The answer of the worker with this control socket. Raises: ConnectionError when it goes away;
    DeadlineExceeded; the error that it answers.
    """
    try:
        async with asyncio.timeout(max(0.0, deadline - monotonic())):
            answer = await asked
    except TimeoutError:
        worker = path.name.removesuffix(CONTROL)
        raise DeadlineExceeded(f"worker {worker} did not answer before the deadline") from None
    if isinstance(answer, protocol.Failure):
        raise error_of(answer)
    return answer


async def _items(items: Iterable[object] | AsyncIterable[object]) -> AsyncGenerator[object, None]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


#: Clients of both kinds: each is told in a forked process.
forking: WeakSet[Any] = WeakSet()


def _after_fork() -> None:
    for client in list(forking):
        client._forked()


os.register_at_fork(after_in_child=_after_fork)
