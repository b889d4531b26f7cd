"""State shared by all connections of one server: limits, counters, log, and turns."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from random import getrandbits
from typing import Any

from cordata import clock
from cordata.config.sections import HttpConfig
from cordata.http.access_log import AccessLog
from cordata.http.asgi import AsgiApp
from cordata.http.proxy import TrustedProxies
from cordata.http.response import date_line
from cordata.metrics.process import HttpMetrics

#: Bytes read from one connection at once. The event loop's buffer is four times as large: each
#: connection that sends ahead would use as much more memory.
_READ_BYTES = 65_536
#: Calls of `TurnQueue` in one turn of the event loop: each takes about 0.1 ms.
_CALLS_PER_TURN = 4
#: They show which endpoints hang. Each open stream is cut off, and the log has the number of all.
_CUT_OFF_LINES = 20
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class ServerState:
    """The part of the server that its connections and exchanges use."""

    #: Set when the server runs.
    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        app: AsgiApp,
        config: HttpConfig,
        app_state: Mapping[str, Any] | None = None,
        *,
        logged_segments: Mapping[str, int] | None = None,
        error_texts: Mapping[str, str] | None = None,
        metrics: HttpMetrics | None = None,
    ) -> None:
        """See `HttpServer`."""
        self.app = app
        self.config = config
        self.trusted = TrustedProxies(config.trusted_proxies)
        #: The lifespan state, of which every request gets a copy.
        self.app_state = dict(app_state or {})
        self.log = AccessLog(logged_segments)
        self._error_texts = sorted((error_texts or {}).items(), key=lambda one: -len(one[0]))
        #: Where requests are counted; None: nowhere.
        self.metrics = metrics
        self.draining = False
        #: Lines that the log may still get, one for each request that the stop cuts off.
        self.cut_off_lines = _CUT_OFF_LINES
        #: The Date field, made once a second.
        self.date_line = date_line(clock.now().timestamp())
        self.connection_count = 0
        #: Requests that the application is handling.
        self.in_flight = 0
        #: Requests that begin at the end of this turn of the event loop.
        self.starting: list[Callable[[], Coroutine[Any, Any, None]]] = []
        #: Tasks of requests whose application waits for something.
        self.tasks: set[asyncio.Task[None]] = set()
        #: Responses of the application, or in its place; and requests that the server refused,
        #: because of their head, their body, or the time they took.
        self.served = self.refused = 0
        #: Tasks that still run though their request ended early, and when (loop time) they are
        #: cancelled.
        self.abandoned: dict[asyncio.Task[None], float] = {}
        #: Set when a connection or a request has ended, for the drain.
        self.ended = asyncio.Event()
        #: Where every connection's bytes arrive; it bounds what a connection gets at once.
        self.received = memoryview(bytearray(_READ_BYTES))
        self.turns = TurnQueue()
        self._id_prefix = os.urandom(8).hex()

    @property
    def is_full(self) -> bool:
        """Whether the server is at `max_connections`."""
        return self.connection_count >= self.config.max_connections

    def start(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a request as a task, after all that this turn of the event loop receives is parsed.

        With 16 busy connections a request to /api/health costs 12 % less than when each is parsed
        and answered in turn; with one it costs 10 to 20 % more, for another turn of the loop.
        """
        if not self.starting:
            self.loop.call_soon(self._start_all)
        self.starting.append(run)

    def _start_all(self) -> None:
        """Start each as a task (on Python 3.12 and later it runs at once, up to its first wait)."""
        starting, self.starting = self.starting, []
        loop = asyncio.get_running_loop()
        for run in starting:
            task = asyncio.Task(run(), loop=loop, **_EAGER)
            if not task.done():
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    def make_request_id(self) -> str:
        """32 hex digits, random per process and then per request: it is the id of a trace, too,
        whose last digits decide whether a program samples it.
        """
        return f"{self._id_prefix}{getrandbits(64):016x}"

    def error_text(self, target: bytes) -> str | None:
        """Begin of the text of server errors for a request target; None: they are JSON."""
        path = target.partition(b"?")[0].decode("latin-1")
        for prefix, text in self._error_texts:
            if not prefix or path == prefix or path.startswith(prefix + "/"):
                return text
        return None


class TurnQueue:
    """Calls each callback once, a few in each turn of the event loop.

    For pipelined requests and large bodies, so that new requests need not wait for all of them:
    beside 16 clients that sent chunks of five bytes a request took 1.5 ms, 25 with all called in
    each turn; beside 200 that pipelined 0.5 ms, and 16 (medians).
    """

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], None] = {}
        self._scheduled = False

    def add(self, callback: Callable[[], None]) -> None:
        """Call it soon, after those added before."""
        self._waiting[callback] = None
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        due = tuple(itertools.islice(self._waiting, _CALLS_PER_TURN))
        if len(self._waiting) > len(due):
            self._schedule()
        else:
            self._scheduled = False
        for callback in due:
            del self._waiting[callback]
            callback()
