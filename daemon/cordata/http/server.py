"""HttpServer: any ASGI application on inherited listening sockets, HTTP/1.1 with keep-alive."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordata import clock
from cordata.config.sections import HttpConfig
from cordata.http.acceptor import Acceptor
from cordata.http.asgi import AsgiApp
from cordata.http.connection import Connection
from cordata.http.crowd import Crowd
from cordata.http.exchange import Exchange
from cordata.http.lifespan import Lifespan, LifespanFailed
from cordata.http.peer import Peer, TrustedProxies, peer_of
from cordata.http.response import date_line
from cordata.http.spread import open_spread
from cordata.http.tally import Tally
from cordata.log import logger

log = logger("cordata.http")

#: Seconds that the rate in `stats` looks back.
_RATE_SPAN_S = 5
#: Read from one connection at once: the event loop's own buffer is four times as large, so that
#: every connection that sends ahead would hold so much more.
_READ_BYTES = 65_536
#: Of `call_in_turn` in one turn of the event loop: each takes about 0.1 ms.
_CALLS_PER_TURN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpStats:
    """What a server is doing."""

    #: Responses written, and requests refused before they were one.
    requests: int
    refused: int
    #: Requests per second over the last five seconds.
    requests_per_s: float
    #: Requests that the application has in hand.
    in_flight: int
    connections: int


class HttpServer:
    """Accepts, reads, calls the application, answers; see `run`."""

    def __init__(
        self,
        app: AsgiApp,
        sockets: Sequence[socket.socket],
        config: HttpConfig,
        state: dict[str, Any] | None = None,
        *,
        spread: Path | None = None,
        logged_segments: Mapping[str, int] | None = None,
        error_texts: Mapping[str, str] | None = None,
    ) -> None:
        """`state` is the lifespan state: every request gets a copy as `scope["state"]`.

        `spread` is a file that all workers on these sockets share, so that they take even shares
        of the connections. `logged_segments`: see `journal.loggable_path`. `error_texts`: how
        our own errors of paths below a prefix begin (`App.mount`). The sockets listen already and
        stay the caller's. Raises: ConfigError for a name in `trusted_proxies` that is none.
        """
        self.app = app
        self.config = config
        self.trusted = TrustedProxies(config.trusted_proxies)
        self.state: dict[str, Any] = dict(state or {})
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by run
        self.draining = False
        self.date_line = date_line(clock.now().timestamp())
        self.tally = Tally()
        self.logged_segments = dict(logged_segments or {})
        self._error_texts = sorted((error_texts or {}).items(), key=lambda one: -len(one[0]))
        self._crowd = Crowd()
        self.served = 0
        self._in_flight = 0
        self.connections: set[Connection] = set()
        #: Exchanges whose client is gone, and when the application is cancelled.
        self._lost: dict[Exchange, float] = {}
        #: What was read last; it bounds what a connection gets at once.
        self.received = memoryview(bytearray(_READ_BYTES))
        #: What `call_in_turn` was given, in order, and the next turn.
        self._waiting: dict[Callable[[], None], None] = {}
        self._turn: asyncio.Handle | None = None
        self._idle = asyncio.Event()
        self._tasks: asyncio.TaskGroup = None  # type: ignore[assignment]  # set by run
        self._spread = open_spread(spread, sockets)
        self._acceptor = Acceptor(
            sockets,
            take=self._take,
            full=self._make_room,
            is_our_turn=self._spread.is_our_turn if self._spread else lambda: True,
        )
        self._samples: deque[tuple[float, int]] = deque(maxlen=32)
        self._id_prefix = os.urandom(8).hex()
        self._ids = 0

    async def run(
        self,
        stop: asyncio.Event,
        *,
        ready: asyncio.Event | None = None,
        tick: Callable[[], None] | None = None,
    ) -> None:
        """Serve until `stop`, then drain: no accepts, `Connection: close` for `drain_s`, idle
        connections closed, requests in hand answered, the application's lifespan ended.

        `ready` is set when connections are accepted; `tick` is called at least once a second.
        Cancelling cuts the requests in hand off. Raises: LifespanFailed.
        """
        self.loop = asyncio.get_running_loop()
        lifespan = Lifespan(self.app, self.state)
        failure: LifespanFailed | None = None
        async with asyncio.TaskGroup() as group:
            life = group.create_task(lifespan.run())
            try:
                await lifespan.startup()
                await self._serve(stop, ready, tick)
                await lifespan.shutdown()
            except LifespanFailed as error:
                failure = error  # raised below: not as one of a group
            finally:
                life.cancel()
                if self._spread is not None:
                    self._spread.close()
        if failure is not None:
            raise failure

    async def _serve(
        self,
        stop: asyncio.Event,
        ready: asyncio.Event | None,
        tick: Callable[[], None] | None,
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            sweeper = tasks.create_task(self._sweep_always(tick))
            self._acceptor.open()
            try:
                if ready is not None:
                    ready.set()
                await stop.wait()
                await self._drain()
            finally:  # before the group ends: nothing may ask it for another task
                sweeper.cancel()
                self.tally.end(self.loop.time())
                self._acceptor.close()
                for connection in tuple(self.connections):
                    if connection.connected:
                        connection.abort()

    async def _drain(self) -> None:
        self._acceptor.close()
        self.draining = True
        if self._spread is not None:
            self._spread.leave()
        if self.connections:
            await asyncio.sleep(self.config.drain_s)
        for connection in tuple(self.connections):
            if connection.connected:
                connection.close_idle()
        while self._in_flight or self.connections:
            self._idle.clear()
            await self._idle.wait()

    def error_text(self, target: bytes) -> str | None:
        """How our own errors of a request target begin; None: they are JSON."""
        path = target.partition(b"?")[0].decode("latin-1")
        for prefix, text in self._error_texts:
            if not prefix or path == prefix or path.startswith(prefix + "/"):
                return text
        return None

    def reload(self, config: HttpConfig) -> None:
        """Apply new limits; no connection is dropped. Raises: ConfigError, and nothing changes."""
        self.trusted = TrustedProxies(config.trusted_proxies)
        self.config = config
        for connection in self.connections:
            connection.reload(config)
        self._acceptor.resume()

    def stats(self) -> HttpStats:
        """Counters now, and the rate of the last seconds."""
        now, done = clock.monotonic(), self.served + self.tally.unread
        began, before = self._samples[0] if self._samples else (now, done)
        span_s = now - began
        return HttpStats(
            requests=self.served,
            refused=self.tally.unread,
            requests_per_s=(done - before) / span_s if span_s > 0 else 0.0,
            in_flight=self._in_flight,
            connections=len(self.connections),
        )

    # Connections

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as there may be."""
        return len(self.connections) >= self.config.max_connections

    def _make_room(self) -> bool:
        """Asked when somebody waits for a connection; then there is room soon, if need be."""
        if not self.is_full:
            return False
        self._crowd.thin(self.connections, self.loop.time())
        return True

    def _take(self, sock: socket.socket) -> None:
        try:
            peer = peer_of(sock, self.trusted)
        except OSError:
            sock.close()  # gone already
            return
        self._tasks.create_task(self._connect(self.new_connection(peer), sock))

    def new_connection(self, peer: Peer) -> Connection:
        """The protocol of one more connection; it counts from now until `connection_ended`."""
        connection = Connection(self, peer)
        self.connections.add(connection)
        if self._spread is not None:
            self._spread.publish(len(self.connections))
        return connection

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: connection, sock)
        except OSError as error:
            log.debug("an accepted connection was gone: %s", error)
            sock.close()
            self.connection_ended(connection)

    def connection_ended(self, connection: Connection) -> None:
        """Called by the connection."""
        self.connections.discard(connection)
        if self._spread is not None:
            self._spread.publish(len(self.connections))
        if self.draining:
            self._idle.set()
        else:
            self._acceptor.resume()

    def call_in_turn(self, callback: Callable[[], None]) -> None:
        """Call once, soon. For what connections have sent ahead: each turn of the event loop does
        some of it, so that a new request never waits for all.
        """
        self._waiting[callback] = None
        if self._turn is None:
            self._turn = self.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        due = tuple(itertools.islice(self._waiting, _CALLS_PER_TURN))
        more = len(self._waiting) > len(due)
        self._turn = self.loop.call_soon(self._take_turn) if more else None
        for callback in due:
            del self._waiting[callback]
            callback()

    # Exchanges

    def exchange_begun(self, exchange: Exchange) -> None:
        """Call the application."""
        self._in_flight += 1
        exchange.task = self._tasks.create_task(exchange.run(self.app))

    def exchange_ended(self, exchange: Exchange) -> None:
        """The application has returned."""
        self._in_flight -= 1
        if exchange.lost:
            self._lost.pop(exchange, None)
        if self.draining:
            self._idle.set()

    def exchange_lost(self, exchange: Exchange) -> None:
        """Nobody waits for this one; it has `response_timeout_s` to notice."""
        if exchange.task is not None and not exchange.task.done():
            self._lost[exchange] = self.loop.time() + self.config.response_timeout_s

    def exchange_settled(self, exchange: Exchange) -> None:
        """The application has noticed: it may finish in its own time."""
        self._lost.pop(exchange, None)

    def make_request_id(self) -> str:
        """32 hex digits: random per process, then counted."""
        self._ids += 1
        return f"{self._id_prefix}{self._ids:016x}"

    # Time

    def sweep(self, now: float | None = None) -> None:
        """One pass: the Date line, the rate, and everything overdue at `now` (loop time)."""
        if now is None:
            now = self.loop.time()
        self.date_line = date_line(clock.now().timestamp())
        for connection in tuple(self.connections):
            if connection.connected:
                connection.check(now)
        for exchange in [exchange for exchange, due in self._lost.items() if now >= due]:
            del self._lost[exchange]
            if exchange.task is not None:
                exchange.task.cancel()
        self._sample()
        self.tally.look(now)
        self._acceptor.resume()
        if self._spread is not None and not self.draining:
            self._spread.beat()

    def _sample(self) -> None:
        now = clock.monotonic()
        if not self._samples or now - self._samples[-1][0] >= 0.5:
            self._samples.append((now, self.served + self.tally.unread))
        while now - self._samples[0][0] > _RATE_SPAN_S:
            self._samples.popleft()

    async def _sweep_always(self, tick: Callable[[], None] | None) -> None:
        while True:
            self.sweep()
            if tick is not None:
                tick()
            await asyncio.sleep(self._tick_s())

    def _tick_s(self) -> float:
        config = self.config
        shortest = min(
            config.first_byte_timeout_s,
            config.header_timeout_s,
            config.body_timeout_s,
            config.response_timeout_s,
        )
        return min(1.0, max(0.01, shortest / 5))
