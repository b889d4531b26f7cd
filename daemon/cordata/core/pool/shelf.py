"""Where sessions lie: their memory to the byte, and the records that bring them back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Raw

from cordata.core.pool.deadline import Wheel
from cordata.core.pool.message import Affinity, Counts, Values
from cordata.core.pool.record import Change, Changed, GlobalsChanged, Put, Removed
from cordata.errors import SessionQuotaExceeded

#: What an entry takes beside its name and value, about: many tiny ones are not for nothing.
ENTRY = 64
#: A counter's size in the books, beside its name.
_COUNTER = 8 + ENTRY
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """How many sessions, how large, how long. The keys are those of the configuration."""

    session_ttl_s: float = 3600.0
    affinity: Affinity = "hint"
    max_sessions: int = 100_000
    max_session_bytes: int = 1_048_576
    max_sessions_bytes: int = 268_435_456


class Session:
    """One session. Only its table changes it."""

    __slots__ = (
        "affinity",
        "asked",
        "bytes",
        "calls",
        "counters",
        "data",
        "expires",
        "id",
        "lent",
        "tick",
        "ttl_s",
        "version",
        "worker",
    )

    def __init__(self, id: str, *, ttl_s: float, affinity: Affinity, worker: str) -> None:
        self.id = id
        self.data: Values = {}
        self.counters: Counts = {}
        #: Grows with every change of data or counters.
        self.version = 0
        #: Names and values of data and counters, and what it takes to keep them.
        self.bytes = 0
        self.ttl_s = ttl_s
        #: Monotonic; each use moves it on.
        self.expires = 0.0
        self.affinity: Affinity = affinity
        #: The worker that it prefers; "": none yet.
        self.worker = worker
        self.tick = -1
        #: Its calls that are at a child.
        self.calls = 0
        #: With which loan of a child it is lent; None: with none.
        self.lent: Any = None
        #: Its calls that came here since it was, if it ever was.
        self.asked = 0


@dataclass(slots=True)
class SessionStats:
    """Counted since the start."""

    created: int = 0
    expired: int = 0
    deleted: int = 0
    refused: int = 0
    lookups: int = 0


def _unlent(session: Session) -> None:
    session.lent = None


class Shelf:
    """Sessions by id, their bytes and versions; rules of use are the SessionTable's."""

    def __init__(self, limits: SessionLimits, to_wall_us: Callable[[float], int]) -> None:
        self._limits = limits
        self._to_wall_us = to_wall_us
        self._sessions: dict[str, Session] = {}
        self._wheel: Wheel[Session] = Wheel(1.0)
        #: The last version given to any session.
        self.version = 0
        #: What all of them hold.
        self.bytes = 0
        #: For the journal, which empties both: what changed, in order, ...
        self.changes: list[Change] = []
        #: ... and sessions that were only used, with their new expiry.
        self.touched: dict[str, float] = {}
        #: Called before a session that is lent changes, or ends.
        self.unlend: Callable[[Session], None] = _unlent
        self.stats = SessionStats()

    def __len__(self) -> int:
        return len(self._sessions)

    def load(self, change: Change, now: float, wall_us: int) -> None:
        """One record of the file, read at monotonic `now` = `wall_us`; leaves no record itself.

        A wall clock that was set meanwhile can end a session early, and never make it live longer
        than its time from now on.
        """
        match change:
            case Put(id=id):
                self._discard(id)
                session = Session(id, ttl_s=change.ttl, affinity=change.aff, worker=change.wk)
                self._insert(session, now)
                self._write(session, change.d, (), change.c)
                self._loaded(session, change.v, now, change.x - wall_us)
            case Changed(id=id) if id in self._sessions:
                session = self._sessions[id]
                held = session.counters
                by = {name: value - held.get(name, 0) for name, value in change.cnt.items()}
                self._write(session, change.set, change.delete, by)
                session.ttl_s = session.ttl_s if change.ttl is None else change.ttl
                session.affinity = change.aff or session.affinity
                session.worker = session.worker if change.wk is None else change.wk
                self._loaded(session, change.v, now, change.x - wall_us)
            case Removed(id=id):
                self._discard(id)
            case Changed() | GlobalsChanged():
                pass
            case _:
                for id, at_us in change.x.items():
                    if id in self._sessions:
                        one = self._sessions[id]
                        self._loaded(one, one.version, now, at_us - wall_us)

    def _loaded(self, session: Session, version: int, now: float, left_us: int) -> None:
        session.version = version
        self.version = max(self.version, version)
        session.expires = now + min(max(left_us / 1e6, 0.0), session.ttl_s)

    def _discard(self, id: str) -> None:
        if id in self._sessions:
            session = self._sessions[id]
            self._wheel.remove(session.tick, session)
            self._remove(session)

    def _insert(self, session: Session, expires: float) -> None:
        self._sessions[session.id] = session
        session.expires = expires
        session.tick = self._wheel.add(session, expires)
        self.touched.pop(session.id, None)

    def _remove(self, session: Session) -> None:
        """Out of the books; its entry in the wheel is gone already."""
        if session.lent is not None:
            self.unlend(session)
        del self._sessions[session.id]
        self.bytes -= session.bytes
        self.touched.pop(session.id, None)

    def _write(
        self, session: Session, set: Mapping[str, Raw], delete: Sequence[str], by: Mapping[str, int]
    ) -> None:
        """Change data and counters, give a new version. Values are copied out of their frame."""
        self.bytes -= session.bytes
        for key in delete:
            value = session.data.pop(key, None)
            session.bytes -= 0 if value is None else size_of(key, value)
        for key, value in set.items():
            former = session.data.get(key)
            session.bytes += size_of(key, value) - (0 if former is None else size_of(key, former))
            session.data[key] = value.copy()
        for name, count in by.items():
            if name not in session.counters:
                session.bytes += len(name.encode()) + _COUNTER
            count += session.counters.get(name, 0)
            session.counters[name] = min(max(count, _LOWEST), _HIGHEST)
        self.bytes += session.bytes
        self.version += 1
        session.version = self.version

    def _check(
        self, session: Session, set: Mapping[str, Raw], delete: Sequence[str], by: Mapping[str, int]
    ) -> None:
        """Raises: SessionQuotaExceeded when the session, or all, would become too large."""
        after = session.bytes
        for key in {*delete, *set}:
            former = session.data.get(key)
            after -= 0 if former is None else size_of(key, former)
        after += sum(size_of(key, value) for key, value in set.items())
        after += sum(len(n.encode()) + _COUNTER for n in by if n not in session.counters)
        if after <= session.bytes:
            return
        if after > self._limits.max_session_bytes:
            limit = self._limits.max_session_bytes
            self._refuse(f"session {session.id!r} would have {after} bytes, {limit} are allowed")
        if self.bytes - session.bytes + after > self._limits.max_sessions_bytes:
            limit = self._limits.max_sessions_bytes
            self._refuse(f"all sessions would have more than {limit} bytes")

    def _refuse(self, text: str) -> None:
        self.stats.refused += 1
        raise SessionQuotaExceeded(text)


def size_of(key: str, value: Raw) -> int:
    """An entry's size in the books."""
    return len(key.encode()) + memoryview(value).nbytes + ENTRY
