"""What all connections of the manager share: its rules, its tables, its clock, its one timer.

Nothing is written while a turn of the loop is under way. Frames are collected by connection; at
the end of the turn the journal is written, then each connection once. So whoever reads an answer
finds what it says in the file, and 64 calls in hand cost a few writes instead of 128.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordata import clock, events
from cordata.core.pool.dispatch import Dispatcher
from cordata.core.pool.globals import Globals
from cordata.core.pool.limits import PoolLimits, Rules
from cordata.core.pool.order import Alarm
from cordata.core.pool.session import SessionTable
from cordata.core.pool.shelf import SessionLimits
from cordata.log import fields, logger
from cordata.pool.server.counting import Complaints, Counting
from cordata.pool.server.lending import Lending

#: Large answers to small questions: so much is made of them in a turn, and four times as much where
#: many ask; the other questions wait for the next turn.
TURN_BYTES = 16 * 1024 * 1024

if TYPE_CHECKING:
    from cordata.core.pool.effects import Effects
    from cordata.pool.server.journal import Journal
    from cordata.pool.server.link import Link

log = logger("cordata.pool")

#: Connections of our own user above the limit; a client is refused at its hello.
_OWN = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The manager's slice of the configuration, as wiring makes it from [pool]."""

    pools: Mapping[str, PoolLimits]
    rules: Rules
    sessions: SessionLimits
    max_globals_bytes: int = 16_777_216
    max_frame_bytes: int = 16_777_216
    max_connections: int = 4096
    #: A peer that reads nothing for so long is closed, if too much waits for it.
    blocked_s: float = 30.0

    @property
    def blocked_bytes(self) -> int:
        """Too much for one that does not read for `blocked_s`."""
        return 4 * self.max_frame_bytes

    @property
    def unread_bytes(self) -> int:
        """Too much for one peer at any time, and for all of them for more than a moment."""
        return 16 * self.max_frame_bytes


class Hub:
    """See the module. Only used from the loop's thread."""

    def __init__(self, limits: ServerLimits, effects: Effects, journal: Journal) -> None:
        self.limits = limits
        #: This run of the manager: tells a call's number from that of another run.
        self.epoch = secrets.token_hex(8)
        self.counting = Counting()
        self.sessions = SessionTable(
            limits.sessions, new_id=lambda: secrets.token_hex(16), to_wall_us=to_wall_us
        )
        self.globals = Globals(limits.max_globals_bytes)
        self.dispatcher = Dispatcher(limits.pools, limits.rules, self.sessions, effects)
        self.journal = journal
        self.lending = Lending(self)
        #: Monotonic; read once for whatever arrives together.
        self.now = clock.monotonic()
        self.links: set[Link] = set()
        #: How many of them are of each user that is not ours.
        self.users: Counter[int] = Counter()
        #: Connections that have not said hello, since when; the oldest first.
        self.strangers: dict[Link, float] = {}
        #: Connections whose other side does not read, since when.
        self.blocked: dict[Link, float] = {}
        #: Connections that have sent a part of a frame, and its size; the oldest first.
        self.partial: dict[Link, int] = {}
        self.partial_bytes = 0
        #: Collected in this turn, to be sent at its end.
        self.turn_bytes = 0
        #: Clients with frames that wait for the next turn.
        self.later: list[Link] = []
        #: `counting.bytes_out` when it was looked at last what is unread.
        self._shed_at = 0
        self.complaints = Complaints()
        #: Connections that end when their last words are read, since when.
        self.ending: dict[Link, float] = {}
        self.stopping = False
        #: The manager itself ends the connections: that is nobody's death.
        self.over = False
        #: While stopping: nobody waits for a call any more.
        self.idle = asyncio.Event()
        #: While stopping: the last connection has ended.
        self.deserted = asyncio.Event()
        #: What a worker is to mail, by MESSAGE_ID, when the next one comes.
        self.alarms: dict[str, str] = {}
        self._dirty: list[Link] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def enter(self, link: Link, *, ours: bool) -> bool:
        """A connection, if there is a place. Clients do not keep workers, children and operators
        out; another user gets no more places than it leaves to all others.
        """
        now, user = clock.monotonic(), link.uid
        left = self.limits.max_connections - len(self.links)
        if ours:
            left += _OWN
        elif left > 0 and self.users[user] >= left:
            if self.complaints.take(link.pid, now) is not None:
                text = "user %d has %d connections, as many as it may: process %d was refused"
                extra = fields(events.POOL_PEER_REFUSED, reason="saturated", peer_pid=link.pid)
                log.warning(text, user, self.users[user], link.pid, extra=extra)
            left = 0
        if left <= 0:
            return False
        if not ours:
            self.users[user] += 1
        self.links.add(link)
        self.strangers[link] = now
        return True

    def leave(self, link: Link) -> None:
        """The connection has ended."""
        if link in self.links:
            self.links.remove(link)
            if link.uid in self.users:
                self.users[link.uid] -= 1
                self.users += Counter()  # without those who have none
        self.strangers.pop(link, None)
        self.blocked.pop(link, None)
        self.partial_bytes -= self.partial.pop(link, 0)
        self.ending.pop(link, None)
        if self.stopping and not self.links:
            self.deserted.set()

    def hold(self, link: Link, size_bytes: int, *, fresh: bool) -> Link | None:
        """So much of a frame has come; `fresh`: another one ended before it.

        Gives who has to go, if all of them are too much: who has begun first.
        """
        former = self.partial.pop(link, 0) if fresh or not size_bytes else self.partial.get(link, 0)
        self.partial_bytes += size_bytes - former
        if size_bytes:
            self.partial[link] = size_bytes
        if self.partial_bytes <= self.limits.unread_bytes:
            return None
        oldest = next(iter(self.partial))
        self.partial_bytes -= self.partial.pop(oldest)
        return oldest

    def mark(self, link: Link) -> None:
        """The connection has something to write: at the end of this turn."""
        if not self._dirty:
            self.wake()
        self._dirty.append(link)

    def wake(self) -> None:
        """Have this turn end, though nothing is to be written."""
        self._loop.call_soon(self._end_turn)

    def arm(self) -> None:
        """Have the next deadline kept. A timer that is too early costs less than moving it."""
        at = self.dispatcher.next_at()
        if at is None or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(max(at - self.now, 0.001), self._expire)

    def save(self) -> None:
        """Hand the file what has changed."""
        if self.sessions.changes:
            self.journal.append(self.sessions.changes)
            self.sessions.changes.clear()
        if self.globals.changes:
            self.journal.append(self.globals.changes)
            self.globals.changes.clear()
        self.journal.flush()

    def alarm(self, message_id: str, text: str) -> None:
        """Have a worker mail this: the manager has neither network nor credentials."""
        slots = self.dispatcher.registry.by_worker.values()
        found = [slot for slot in slots if slot.conn is not None]
        if found:
            found.sort(key=lambda slot: slot.draining)
            found[0].conn.say(Alarm(message_id, text))
        else:
            self.alarms[message_id] = text

    def shed(self) -> None:
        """Close those for whom too much waits, the largest first."""
        self._shed_at = self.counting.bytes_out
        now = clock.monotonic()
        unread = sorted((link.unread_bytes(), id(link), link) for link in self.blocked)
        total = sum(size for size, _, _ in unread)
        for size, _, link in reversed(unread):
            late = now - self.blocked[link] >= self.limits.blocked_s
            if total > self.limits.unread_bytes or (late and size > self.limits.blocked_bytes):
                total -= size
                link.give_up()

    def close(self) -> None:
        """No timer any more, and no connection, also when the stop was cut short."""
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        for link in [*self.links, *self.ending]:
            link.abort()

    def running(self) -> bool:
        """Whether a child has a call in hand that somebody waits for."""
        children = self.dispatcher.registry.by_pid.values()
        held = any(call.client is not None for child in children for call in child.held())
        return held or self.lending.out()

    def _expire(self) -> None:
        self._timer = None
        self.now = clock.monotonic()
        try:
            self.dispatcher.expire(self.now)
        finally:  # one that could not be ended is no reason to keep the others waiting
            self.arm()

    def _end_turn(self) -> None:
        if self.sessions.changes or self.globals.changes:
            self.save()
        if self.lending.wanted:
            self.lending.lend()
        dirty, self._dirty, self.turn_bytes = self._dirty, [], 0
        for link in dirty:
            link.flush()
        if self.counting.bytes_out - self._shed_at > self.limits.unread_bytes // 4:
            self.shed()
        later, self.later = self.later, []
        for link in later:
            link.go_on()
        if self.stopping and not self.running():
            self.idle.set()


def to_wall_us(at: float) -> int:
    """The wall time of a monotonic one, in microseconds since 1970."""
    return clock.now_us() + int((at - clock.monotonic()) * 1e6)
