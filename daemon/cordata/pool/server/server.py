"""The manager: takes connections on its sockets, keeps time, and stops in order.

stop: no new connection, `goaway` to all; who waits is answered `not_run` and comes again; what runs
is waited for; then the file is complete and every connection ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cordata import clock, events
from cordata.core.pool.call import RUNNING
from cordata.core.pool.limits import Failure
from cordata.core.pool.message import Goaway
from cordata.core.pool.record import Change, GlobalsChanged
from cordata.core.pool.session import SLICE
from cordata.log import fields, logger
from cordata.pool.server.clientlink import ClientPeer
from cordata.pool.server.effects import LinkEffects
from cordata.pool.server.greeting import HELLO_S, Greeting
from cordata.pool.server.hub import Hub, ServerLimits
from cordata.pool.server.journal import Journal
from cordata.pool.server.link import Link
from cordata.pool.server.report import Report
from cordata.pool.server.status import status_line, status_of

log = logger("cordata.pool")

_BACKLOG = 4096
#: From Python 3.13 on a loop removes a socket's file at its end. This one is the service manager's.
_KEEP: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
#: Expired sessions leave memory, touches reach the file, connections are looked at.
_SECOND_S = 1.0
#: Between slices of a rewrite of the file.
_SLICE_EVERY_S = 0.005
#: A disk that was full is tried again.
_HEAL_EVERY_S = 5.0
#: Of the time to stop, so much is left for the end itself.
_LAST_S = 1.0
#: In the books of the file a session is this much larger than its data.
_SESSION_BYTES = 160


class PoolServer:
    """See the module. Made and run within the loop."""

    def __init__(
        self,
        limits: ServerLimits,
        *,
        sockets: Sequence[socket.socket],
        directory: Path,
        stop_timeout_s: float,
    ) -> None:
        """`directory` holds the file of sessions. Raises: ConfigError when it cannot be used."""
        self._sockets = sockets
        self._stop_timeout_s = stop_timeout_s
        effects = LinkEffects()
        self._journal = Journal(directory)
        self.hub = effects.hub = Hub(limits, effects, self._journal)
        self._report = effects.report = Report(self.hub)
        self._heal_at = 0.0
        self._second_at = clock.monotonic()
        self._told_trouble = False
        #: The last slice of expired sessions was a full one.
        self._expiring = False

    async def run(
        self, stop: asyncio.Event, *, ready: asyncio.Event, tick: Callable[[], None]
    ) -> None:
        """Serve until `stop`, then stop in order. `tick` is called about once a second."""
        self._replay()
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_unix_server(
                lambda: Link(self.hub, Greeting), sock=sock.dup(), backlog=_BACKLOG, **_KEEP
            )
            for sock in self._sockets
        ]
        ready.set()
        try:
            while not await _set_within(stop, self._pause_s()):
                self._turn()
                tick()
            for server in servers:
                server.close()
            await self._stop(tick)
        finally:
            for server in servers:
                server.close()
            self.hub.close()
            self.hub.save()
            self._journal.close()

    def status(self) -> dict[str, Any]:
        """Everything, as `cordata pool status --json` shows it."""
        self.hub.now = clock.monotonic()
        return status_of(self.hub)

    def status_line(self) -> str:
        """For STATUS=."""
        return status_line(self.hub)

    def reload(self, limits: ServerLimits) -> None:
        """Other limits. Which pools there are, and the largest frame, need a restart."""
        hub = self.hub
        hub.limits = ServerLimits(
            pools=limits.pools,
            rules=limits.rules,
            sessions=limits.sessions,
            max_globals_bytes=hub.limits.max_globals_bytes,
            max_frame_bytes=hub.limits.max_frame_bytes,
            max_connections=limits.max_connections,
        )
        hub.dispatcher.reload(limits.pools, limits.rules)
        if not limits.rules.lend:
            hub.lending.recall_all()
        hub.sessions.limit(limits.sessions)
        self._report.look_at_level()

    def _replay(self) -> None:
        hub = self.hub
        now, wall_us = clock.monotonic(), clock.now_us()

        def load(change: Change) -> None:
            if isinstance(change, GlobalsChanged):
                hub.globals.load(change)
            else:
                hub.sessions.load(change, now, wall_us)

        found = self._journal.replay(load)
        hub.sessions.sweep(now, limit=1 << 62)
        extra = fields(
            events.POOL_RESTARTED, sessions=len(hub.sessions), dropped_bytes=found.dropped_bytes
        )
        if found.version is not None:
            text = "the file of sessions is of version %d, which this program does not know; it was"
            log.error(text + " put aside as %s", found.version, found.aside, extra=extra)
        elif found.aside:
            text = "the file of sessions is damaged from its start; it was put aside as %s"
            log.error(text, found.aside, extra=extra)
        elif found.dropped_bytes:
            text = "sessions read: %d; the last %d bytes were torn, and are cut off"
            log.warning(text, len(hub.sessions), found.dropped_bytes, extra=extra)
        else:
            log.info("sessions read: %d", len(hub.sessions), extra=extra)

    def _pause_s(self) -> float:
        return _SLICE_EVERY_S if self._journal.rewriting or self._expiring else _SECOND_S

    def _turn(self) -> None:
        """A slice of a rewrite and of the expired sessions, if there are any left of the last one;
        and once a second the rest.
        """
        hub, journal = self.hub, self._journal
        hub.now = clock.monotonic()
        if journal.rewriting:
            hub.save()
            if journal.step() and self._told_trouble:
                self._told_trouble = False
                extra = fields(events.POOL_JOURNAL_HEALED)
                log.info("the file of sessions is whole again", extra=extra)
        if self._expiring:
            self._expiring = hub.sessions.sweep(hub.now) == SLICE
        elapsed_s = hub.now - self._second_at
        if elapsed_s < _SECOND_S * 0.9:
            return
        self._second_at = hub.now
        hub.counting.take_rate(elapsed_s)
        hub.lending.extend()
        self._expiring = hub.sessions.sweep(hub.now) == SLICE
        touched = hub.sessions.take_touched()
        if touched is not None:
            journal.append([touched])
        hub.save()
        self._look_at_file()
        self._look_at_links()

    def _look_at_file(self) -> None:
        hub, journal = self.hub, self._journal
        if journal.degraded and not self._told_trouble:
            self._told_trouble = True
            log.error(
                "sessions are not saved: %s; they go on in memory",
                journal.trouble,
                extra=fields(events.POOL_JOURNAL_FAILED, reason=journal.trouble),
            )
        live = hub.sessions.bytes + _SESSION_BYTES * len(hub.sessions) + hub.globals.bytes
        if journal.due(live) and hub.now >= self._heal_at:
            troubled = journal.degraded
            if not journal.begin(self._snapshot()) or troubled:
                self._heal_at = hub.now + _HEAL_EVERY_S

    def _snapshot(self) -> Iterator[Change]:
        """Each as it is when it is written: what has changed since the beginning stands before."""
        yield self.hub.globals.whole()
        yield from self.hub.sessions.snapshot()

    def _look_at_links(self) -> None:
        hub = self.hub
        for link, since in list(hub.strangers.items()):
            if hub.now - since < HELLO_S:
                break
            link.refuse("protocol", f"no hello within {HELLO_S:g} s")
        for link, since in list(hub.ending.items()):
            if hub.now - since < HELLO_S:
                break
            link.abort()
        hub.shed()
        limit_s = hub.dispatcher.rules.unread_timeout_s
        for child in hub.dispatcher.registry.by_pid.values():
            call = child.call
            if call is not None and call.credits and call.stage is RUNNING:
                since = call.client.unread_since(call)
                if since is not None and hub.now - since >= limit_s:
                    hub.dispatcher.end_unread(call, hub.now)
        hub.arm()

    async def _stop(self, tick: Callable[[], None]) -> None:
        hub = self.hub
        hub.now = clock.monotonic()
        end = hub.now + max(self._stop_timeout_s - 3 * _LAST_S, 0.0)
        hub.stopping = True
        hub.lending.recall_all()
        for link in list(hub.links):
            if isinstance(link.peer, ClientPeer):
                link.peer.go_away()
            elif not isinstance(link.peer, Greeting):
                link.say(Goaway(why="stop"))
        for call in hub.dispatcher.stop(hub.now):
            if call.client is not None:
                call.client.fail(call, Failure("not_run", "the pool stops"))
        if not hub.running():
            hub.idle.set()
        while clock.monotonic() < end and not await _set_within(hub.idle, _SECOND_S):
            self._turn()
            tick()
        await asyncio.sleep(0)  # the end of this turn: what was said is written
        await self._hear_clients_out()
        hub.over = True
        for link in list(hub.links):
            link.close()
        if hub.links:
            await _set_within(hub.deserted, _LAST_S)
        for link in list(hub.links):
            link.abort()

    async def _hear_clients_out(self) -> None:
        """A call that was sent before its client saw the goaway is answered that it did not run."""
        clients = [link for link in self.hub.links if isinstance(link.peer, ClientPeer)]
        for link in clients:
            link.deafen()
        end = clock.monotonic() + _LAST_S
        # No event: of all connections these are to end.
        while not self.hub.links.isdisjoint(clients) and clock.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
