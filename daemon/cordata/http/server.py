"""HttpServer: accepts connections for an ASGI application, enforces deadlines, and drains.

It is a service of the worker, in the intake layer: the first to stop.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cordata import clock
from cordata.config.sections import HttpConfig
from cordata.heartbeat import Heartbeat
from cordata.http.accept import Acceptor, ConnectionCounts
from cordata.http.asgi import AsgiApp, Lifespan, LifespanFailed
from cordata.http.connection import Connection
from cordata.http.proxy import Peer, TrustedProxies, peer_of
from cordata.http.response import date_line
from cordata.http.state import ServerState
from cordata.log import LogThrottle, logger, plural
from cordata.metrics.process import HttpMetrics

log = logger("cordata.http")

#: Share of all connections (one in ...) that is evicted at once, so that scanning all of them is
#: rarely needed.
_EVICTED_SHARE = 20


class HttpServer:
    """Serves until `stop` is set; see `run`."""

    name = "http"

    def __init__(
        self,
        app: AsgiApp,
        sockets: Sequence[socket.socket],
        config: HttpConfig,
        app_state: Mapping[str, Any] | None = None,
        *,
        counts_path: Path | None = None,
        logged_segments: Mapping[str, int] | None = None,
        error_texts: Mapping[str, str] | None = None,
        metrics: HttpMetrics | None = None,
        before: Callable[[], Awaitable[None]] | None = None,
        heartbeat: Heartbeat | None = None,
        cut_off_s: float | None = None,
    ) -> None:
        """`app_state` is the lifespan state: every request gets a copy as `scope["state"]`.

        `counts_path` is a file that all workers on these sockets share, so that they take even
        shares of the connections. `logged_segments`: see `access_log.loggable_path`. `error_texts`:
        how the server's own errors of paths below a prefix begin (`App.mount`). `metrics`: where
        requests are counted. `before` is awaited before a connection is accepted. `heartbeat`: the
        one of the service that runs this server. `cut_off_s`: how long after the stop requests may
        still run, and clients read (None: as long as they like). The sockets listen already, and
        the caller closes them.
        """
        self._before = before
        self._cut_off_s = cut_off_s
        #: Set when connections are accepted.
        self.ready = asyncio.Event()
        #: Touched at least once a second.
        self.heartbeat = heartbeat or Heartbeat(max_age_s=10.0)
        self.state = ServerState(
            app,
            config,
            app_state,
            logged_segments=logged_segments,
            error_texts=error_texts,
            metrics=metrics,
        )
        self.connections: set[Connection] = set()
        self._counts = ConnectionCounts.open(counts_path, sockets) if counts_path else None
        self._acceptor = Acceptor(
            sockets,
            take=self._take,
            is_full=lambda: self.state.is_full,
            make_room=lambda: self.evict(self.state.loop.time()),
            is_our_turn=self._counts.is_our_turn if self._counts else lambda: True,
        )
        #: Set when the server runs: the sweep, and connections that are being set up.
        self._tasks: asyncio.TaskGroup
        #: Time and number of requests at the last `status`.
        self._counted = clock.monotonic(), 0
        self._eviction_throttle = LogThrottle()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, then drain: no accepts, `Connection: close` for `drain_s`, idle
        connections closed, requests in flight answered, those cut off that take too long, the
        application's lifespan ended.

        Cancelling cuts the requests in flight off. Raises: LifespanFailed.
        """
        if self._before is not None:
            await self._before()
        self.state.loop = asyncio.get_running_loop()
        lifespan = Lifespan(self.state.app, self.state.app_state)
        failure: LifespanFailed | None = None
        async with asyncio.TaskGroup() as group:
            life = group.create_task(lifespan.run())
            try:
                await lifespan.startup()
                await self._serve(stop)
                await lifespan.shutdown()
            except LifespanFailed as error:
                failure = error  # raised below: not as one of a group
            finally:
                life.cancel()
                if self._counts is not None:
                    self._counts.close()
        if failure is not None:
            raise failure

    async def _serve(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            sweeper = tasks.create_task(self._sweep_always())
            self._acceptor.open()
            try:
                self.ready.set()
                await stop.wait()
                try:
                    async with asyncio.timeout(self._cut_off_s):
                        await self._drain()
                except TimeoutError:
                    log.warning(
                        "[worker] stop_timeout_s is too short: %s and %s cut off",
                        plural(self.state.in_flight, "request"),
                        plural(len(self.connections), "connection"),
                    )
            finally:  # before the group ends, so that no task is added to it any more
                sweeper.cancel()
                self.state.log.close(self.state.loop.time())
                self._acceptor.close()
                for connection in self._connected():
                    connection.abort()
                self.state.starting.clear()
                for task in self.state.tasks:
                    task.cancel()
                if self.state.tasks:
                    await asyncio.wait(self.state.tasks)

    async def _drain(self) -> None:
        state = self.state
        self._acceptor.close()
        state.draining = True
        if self._counts is not None:
            self._counts.leave()
        if self.connections:
            await asyncio.sleep(state.config.drain_s)
        for connection in self._connected():
            connection.close_idle()
        while state.in_flight or self.connections:
            state.ended.clear()
            await state.ended.wait()

    def reload(self, config: HttpConfig) -> None:
        """Apply new limits; no connection is dropped."""
        self.state.trusted = TrustedProxies(config.trusted_proxies)
        self.state.config = config
        self._acceptor.resume()

    def status(self) -> str:
        """For STATUS=: `12 req/s; 3 in flight`; the rate since the last call, with refused ones."""
        began, before = self._counted
        now, done = self._counted = clock.monotonic(), self.state.served + self.state.refused
        rate = (done - before) / (now - began) if now > began else 0.0
        return f"{rate:.0f} req/s; {self.state.in_flight} in flight"

    # Connections

    def _take(self, sock: socket.socket) -> None:
        try:
            peer = peer_of(sock)
        except OSError:
            sock.close()  # the client has already left
            return
        self._tasks.create_task(self._connect(self.new_connection(peer), sock))

    def new_connection(self, peer: Peer) -> Connection:
        """The protocol of one more connection; it counts from now until it is closed."""
        connection = Connection(self.state, peer, self._forget)
        self.connections.add(connection)
        self._count()
        return connection

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        try:
            await self.state.loop.connect_accepted_socket(lambda: connection, sock)
        except OSError as error:
            log.debug("an accepted connection was gone: %s", error)
            sock.close()
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        """The connection is closed."""
        self.connections.discard(connection)
        self._count()
        if self.state.draining:
            self.state.ended.set()
        else:
            self._acceptor.resume()

    def _count(self) -> None:
        self.state.connection_count = count = len(self.connections)
        if self._counts is not None:
            self._counts.publish(count)

    def _connected(self) -> list[Connection]:
        """The connections whose transport is set up."""
        return [connection for connection in self.connections if connection.flow.connected]

    def evict(self, now: float) -> None:
        """Close some connections for which the server waits, because others wait to be accepted.

        Clients that open connections and send nothing, or little, or do not read their responses,
        could else block all other clients until the deadlines pass, and again. The highest rank
        goes first (see `eviction_key`), and in it the longest wait. A client is safe once
        its request has arrived, as long as it reads the response.
        """
        found = ((one.eviction_key(now), one) for one in self.connections)
        waiting = [(key, one) for key, one in found if key is not None]
        if not waiting:
            return
        count = max(1, len(self.connections) // _EVICTED_SHARE)
        for _, connection in heapq.nlargest(count, waiting, key=lambda pair: pair[0]):
            connection.evict()
        if self._eviction_throttle.is_due("", now=now):
            log.warning(
                "connection limit reached (%d): closing those that send nothing, or do not read",
                len(self.connections),
            )

    # Time

    def sweep(self, now: float | None = None) -> None:
        """One pass: update the Date line, and end everything overdue at `now` (loop time)."""
        state = self.state
        if now is None:
            now = state.loop.time()
        state.date_line = date_line(clock.now().timestamp())
        for connection in self._connected():
            connection.check(now)
        for task in [task for task, deadline in state.abandoned.items() if now >= deadline]:
            del state.abandoned[task]
            task.cancel()
        state.log.sweep(now)
        self._acceptor.resume()
        if self._counts is not None and not state.draining:
            self._counts.heartbeat()

    async def _sweep_always(self) -> None:
        while True:
            self.sweep()
            self.heartbeat.touch()
            await asyncio.sleep(self._sweep_interval_s())

    def _sweep_interval_s(self) -> float:
        config = self.state.config
        shortest = min(
            config.first_byte_timeout_s,
            config.header_timeout_s,
            config.body_timeout_s,
            config.response_timeout_s,
        )
        return min(1.0, max(0.01, shortest / 5))
