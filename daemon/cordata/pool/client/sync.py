"""The pool's client for threads: runs the async client on an event loop in a separate thread.

All threads of a process may share one SyncClient.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextvars import copy_context
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack

from msgspec import Raw

from cordata.config.pool import PoolConfig
from cordata.errors import PoolClosed
from cordata.pool.client.call import Call, CallOptions, Stream
from cordata.pool.client.client import MAP_WINDOW, Client, forking
from cordata.pool.client.session_api import Globals, Sessions
from cordata.pool.client.values import FORKED, encode_value
from cordata.pool.shared.protocol import NO_KEYWORDS

T = TypeVar("T")
P = ParamSpec("P")
_CLOSED = "the client is closed"
#: How often a waiting thread checks for signals.
_INTERRUPT_S = 0.25


class SyncClient:
    """As `Client`, for code without an event loop; any thread may use it.

    `hard_cancel`: a call that is interrupted (Ctrl-C) has its child killed if it does not end
    within the pool's `cancel_grace_s`. A process that is forked connects anew.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        timeout: float | None = None,
        pools: Mapping[str, PoolConfig] | None = None,
        hard_cancel: bool = False,
    ) -> None:
        self._client = Client(path, timeout=timeout, pools=pools)
        self._hard = hard_cancel
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._closed = False
        self.status = self._sync(self._client.status)
        self.list_sessions = self._sync(self._client.list_sessions)
        self.drain, self.recycle = self._sync(self._client.drain), self._sync(self._client.recycle)
        self.sessions = SyncSessions(self, self._client.sessions)
        self.globals = SyncGlobals(self, self._client.globals)
        forking.add(self)

    def execute(self, command: str, payload: object = None, **options: Unpack[CallOptions]) -> Any:
        """As `Client.execute`. Raises the same."""
        future = self._begin(command, encode_value((payload,)), **options)
        try:
            return wait(future)
        except BaseException:
            if not future.done():  # interrupted
                future.cancel_call(hard=self._hard)
            raise

    def submit(
        self, command: str, /, *arguments: object, **keywords: object
    ) -> concurrent.futures.Future[Any]:
        """As `Client.submit`; returns a future, whose `cancel` cancels the call."""
        encoded_keywords = encode_value(keywords) if keywords else NO_KEYWORDS
        return self._begin(command, encode_value(arguments), encoded_keywords)

    def map(
        self, command: str, items: Iterable[object], *, window: int = 0
    ) -> Generator[Any, None, None]:
        """As `Client.map`: a generator of the results, in the order of the items."""
        pending: deque[CallFuture] = deque()
        window = window or MAP_WINDOW
        hard = self._hard
        try:
            for item in items:
                pending.append(self._begin(command, encode_value((item,))))
                if len(pending) >= window:
                    yield wait(pending[0])
                    pending.popleft()
            while pending:
                yield wait(pending[0])
                pending.popleft()
        except (Exception, GeneratorExit):
            hard = False  # not interrupted
            raise
        finally:
            for future in pending:  # the first one may have ended
                future.cancel_call(hard=hard)

    def stream(
        self,
        command: str,
        payload: object = None,
        *,
        credit: int = 16,
        **options: Unpack[CallOptions],
    ) -> Generator[Any, None, None]:
        """As `Client.stream`: closing the generator cancels the call. Raises the same."""
        stream, arguments = Stream(credit), encode_value((payload,))

        async def begin() -> Call:
            return self._client.start_encoded(command, arguments, stream=stream, **options)

        call, thread = self._run(begin()), self._running()
        hard = self._hard
        try:
            while self._thread is thread:
                part = thread.run(stream.next(call))
                if not part:
                    return
                yield part[0]
            raise PoolClosed(FORKED)
        except (Exception, GeneratorExit):
            hard = False  # not interrupted
            raise
        finally:
            if self._thread is thread:
                thread.post(lambda: call.cancel(hard=hard))

    def close(self) -> None:
        """Close the connections; calls of other threads raise PoolClosed. May be called twice."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._closed = True
        if thread is not None:
            thread.run(self._client.close())
            thread.close()

    def _begin(
        self,
        command: str,
        arguments: Raw,
        keywords: Raw = NO_KEYWORDS,
        **options: Unpack[CallOptions],
    ) -> CallFuture:
        """Start a call on the loop's thread, in the context of this one."""
        thread = self._running()
        future = CallFuture(thread)

        def begin() -> None:
            try:
                future.began(self._client.start_encoded(command, arguments, keywords, **options))
            except Exception as error:  # noqa: BLE001 - raised by the future
                future.set_exception(error)

        if not thread.post(begin):
            raise PoolClosed(_CLOSED)
        return future

    def _sync(self, method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
        """The method for threads: it runs in the loop's thread, and its result is waited for."""

        @wraps(method)
        def call(*arguments: P.args, **keywords: P.kwargs) -> T:
            return self._run(method(*arguments, **keywords))

        return call

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            thread = self._running()
        except PoolClosed:
            work.close()
            raise
        return thread.run(work)

    def _running(self) -> _LoopThread:
        thread = self._thread
        if thread is not None:
            return thread
        with self._lock:
            if self._closed:
                raise PoolClosed(_CLOSED)
            if self._thread is None:
                self._thread = _LoopThread()
            return self._thread

    def _forked(self) -> None:
        """Reset in a forked child: thread and owner of the lock exist only in the parent."""
        self._lock = threading.Lock()
        self._thread = None

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class CallFuture(concurrent.futures.Future[Any]):
    """The future of a call that runs in the loop's thread."""

    def __init__(self, thread: _LoopThread) -> None:
        super().__init__()
        self._thread = thread
        #: None until the loop's thread has begun it, and if it could not.
        self._call: Call | None = None

    def cancel(self) -> bool:
        """Cancel the call: if it waits, it never begins; if it runs, the command can see it."""
        if self.done():
            return False
        self.cancel_call(hard=False)
        return True

    def cancel_call(self, *, hard: bool) -> None:
        """As `Call.cancel`, from any thread."""
        self._thread.post(lambda: self._cancel(hard=hard))

    def began(self, call: Call) -> None:
        """Set the call; runs in the loop's thread."""
        self._call = call
        call.add_done_callback(self._over)

    def _cancel(self, *, hard: bool) -> None:
        if self._call is not None:
            self._call.cancel(hard=hard)

    def _over(self, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self.set_result(future.result())
        else:
            self.set_exception(error)


class _LoopThread:
    """An event loop that runs in a thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        #: Taken to post: what was posted before `close` is run. Reentrant, because the garbage
        #: collector may end a stream, which posts, at any point.
        self._lock = threading.RLock()
        self._closed = False
        self._thread = threading.Thread(target=self._main, name="pool", daemon=True)
        self._thread.start()

    def post(self, work: Callable[[], object]) -> bool:
        """Call `work` in the loop's thread, in the context of this thread, in the order of the
        posts; False: the loop is closed.
        """
        with self._lock:
            if self._closed:
                return False
            self._loop.call_soon_threadsafe(work, context=copy_context())
            return True

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop's thread and return its result; an interrupt cancels it."""
        with self._lock:
            if self._closed:
                work.close()
                raise PoolClosed(_CLOSED)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return wait(future)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Return when all that was posted has ended; the client is closed before."""
        with self._lock:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _main(self) -> None:
        self._loop.run_forever()
        while tasks := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()


def wait(future: concurrent.futures.Future[T]) -> T:
    """The future's result. A signal to another thread interrupts it within _INTERRUPT_S."""
    while True:
        try:
            return future.result(_INTERRUPT_S)
        except TimeoutError:
            if future.done():
                raise


class SyncSessions:
    """As `Sessions`, for threads."""

    def __init__(self, client: SyncClient, sessions: Sessions) -> None:
        self.create, self.get = client._sync(sessions.create), client._sync(sessions.get)
        self.update, self.delete = client._sync(sessions.update), client._sync(sessions.delete)
        self.count = client._sync(sessions.count)


class SyncGlobals:
    """As `Globals`, for threads."""

    def __init__(self, client: SyncClient, globals: Globals) -> None:
        self.get, self.set = client._sync(globals.get), client._sync(globals.set)
        self.delete = client._sync(globals.delete)
