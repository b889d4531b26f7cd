"""A call's session and the globals as a command sees them: mappings that note what it changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from msgspec import Raw, msgpack

from cordata.core.pool.message import MAX_NAME, Delta, Values, check_names
from cordata.core.pool.order import GlobalsCopy, News, Run
from cordata.errors import ProtocolError

#: In place of each dictionary that a call has no use for, as most have none; never written.
_NOTHING: dict[Any, Any] = {}


class Noted(MutableMapping[str, Any]):
    """Values by name. What is read is decoded anew for each call, and kept for that call.

    A value is encoded when it is assigned: to change a list that was read, assign it again.
    """

    __slots__ = ("_before", "_decoded", "deleted", "set")

    def __init__(self, before: Values) -> None:
        self._before = before
        self._decoded: dict[str, Any] = _NOTHING
        #: What this call assigned, and what it deleted.
        self.set: Values = _NOTHING
        self.deleted: dict[str, None] = _NOTHING

    def __getitem__(self, key: str) -> Any:
        if key in self._decoded:
            return self._decoded[key]
        raw = self.set.get(key)
        if raw is None:
            if key in self.deleted:
                raise KeyError(key)
            raw = self._before[key]
        if self._decoded is _NOTHING:
            self._decoded = {}
        value = self._decoded[key] = msgpack.decode(raw)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        """Raises: TypeError when MessagePack has no such value, ValueError for a key that is too
        long.
        """
        if not isinstance(key, str):
            raise TypeError(f"a key is a str, not {type(key).__name__}")
        if len(key) > MAX_NAME:
            check_names((key,))
        raw = Raw(msgpack.encode(value))
        if self.set is _NOTHING:
            self.set = {}
        self.set[key] = raw
        self.deleted.pop(key, None)
        self._decoded.pop(key, None)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self.set.pop(key, None)
        self._decoded.pop(key, None)
        if key in self._before:
            if self.deleted is _NOTHING:
                self.deleted = {}
            self.deleted[key] = None

    def __contains__(self, key: object) -> bool:
        return key in self.set or (key in self._before and key not in self.deleted)

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._before if key not in self.deleted)
        yield from (key for key in self.set if key not in self._before)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keep(self) -> None:
        """What was changed is what there was before, from now on."""
        self._before.update(self.set)
        for key in self.deleted:
            del self._before[key]


class Session(Noted):
    """The session of a call. Its changes are kept when the call succeeds, and lost when it fails;
    of two calls that change one key at the same time the later one counts.
    """

    __slots__ = ("_counted", "_counters", "_version", "id", "worker")

    def __init__(
        self, id: str, worker: str, version: int, data: Values, counters: dict[str, int]
    ) -> None:
        # As Noted does, without a second call: one of these is made for every call.
        self._before = data
        self._decoded = self.set = self.deleted = self._counted = _NOTHING
        self.id = id
        #: The worker that it prefers; "": any.
        self.worker = worker
        self._version = version
        self._counters = counters

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters by name, with what this call counted."""
        return {
            name: self._counters.get(name, 0) + self._counted.get(name, 0)
            for name in {**self._counters, **self._counted}
        }

    def count(self, **by: int) -> None:
        """Add to counters: `session.count(seen=1)`. Calls at the same time add up."""
        check_names(by)
        for name, number in by.items():
            if not isinstance(number, int):
                raise TypeError(f"a counter counts by int, not {type(number).__name__}")
            if number:
                if self._counted is _NOTHING:
                    self._counted = {}
                self._counted[name] = self._counted.get(name, 0) + number

    def delta(self) -> Delta | None:
        """What the call changed; None: nothing."""
        if not (self.set or self.deleted or self._counted):
            return None
        counted = dict(self._counted)
        return Delta(v=self._version, set=self.set, delete=list(self.deleted), cnt=counted)

    def keep(self) -> None:
        """The call succeeded, and has changed something."""
        super().keep()
        for name, by in self._counted.items():
            self._counters[name] = self._counters.get(name, 0) + by


class Shelf:
    """The sessions and globals that this child keeps between calls; the manager says which."""

    def __init__(self, worker: str = "") -> None:
        #: That of the child, at which a session stays that has not preferred any before.
        self._worker = worker
        #: Data, counters, and the worker that it prefers.
        self._sessions: dict[str, tuple[Values, dict[str, int], str]] = {}
        #: Those that calls of a loan may use: the manager tells when a copy of them is no good.
        self._lent: set[str] = set()
        #: What all sessions share.
        self.globals: Values = {}

    def lent(self, id: str) -> Session | None:
        """The session of a call of a loan; None: those may not use it."""
        if id not in self._lent:
            return None
        data, counters, worker = self._sessions[id]
        # A client does not know which one it prefers, nor which version it has.
        return Session(id, worker or self._worker, 0, data, counters)

    def lend(self, ids: Iterable[str]) -> None:
        """They may use those that are here, too."""
        self._lent.update(id for id in ids if id in self._sessions)

    def end_loan(self) -> None:
        """Nobody may use any."""
        self._lent.clear()

    def session_of(self, run: Run | News) -> Session | None:
        """The session of the call, None without one. Raises: ProtocolError when its data was not
        sent and is not here.
        """
        if run.f:
            for id in run.f:
                self._sessions.pop(id, None)
                self._lent.discard(id)
        copy = run.s
        if copy is None:
            return None
        if copy.full is not None:
            # A view into the frame would keep the whole frame.
            data = {key: raw.copy() for key, raw in copy.full.items()}
            self._lent.discard(copy.id)  # of this copy the manager has not said so
            self._sessions[copy.id] = (data, dict(copy.cnt), copy.wk)
        found = self._sessions.get(copy.id)
        if found is None:
            raise ProtocolError(f"no data came of session {copy.id!r}, which is not here")
        data, counters, worker = found
        if copy.wk != worker:
            self._sessions[copy.id] = (data, counters, copy.wk)
        return Session(copy.id, copy.wk, copy.v, data, counters)

    def take_globals(self, news: GlobalsCopy) -> None:
        """What changed in them since the last call."""
        if news.full:
            self.globals.clear()
        self.globals.update((key, raw.copy()) for key, raw in news.set.items())
        for key in news.delete:
            self.globals.pop(key, None)
