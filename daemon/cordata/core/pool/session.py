"""Sessions: data that outlives a call, with an end. One that has expired is gone for everybody.

Expiry is looked at in every read; the wheel only frees memory. Versions come from one counter for
all sessions, so that a session made anew under an old id never has a version that a child keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from msgspec import Raw

from cordata.core.pool.message import Affinity, Counts, Delta
from cordata.core.pool.record import Changed, Put, Removed, Touched
from cordata.core.pool.shelf import Session, SessionLimits, Shelf
from cordata.errors import SessionExists, SessionNotFound

#: Sessions that one turn of the event loop looks at to free the expired ones: about a millisecond.
SLICE = 1000


class SessionTable(Shelf):
    """All sessions of a manager."""

    def __init__(
        self,
        limits: SessionLimits,
        *,
        new_id: Callable[[], str],
        to_wall_us: Callable[[float], int],
    ) -> None:
        super().__init__(limits, to_wall_us)
        self._new_id = new_id

    def limit(self, limits: SessionLimits) -> None:
        """Other limits, from a reload; sessions that exceed them stay."""
        self._limits = limits

    def create(
        self,
        id: str,
        now: float,
        *,
        data: Mapping[str, Raw],
        ttl_s: float | None = None,
        affinity: Affinity | None = None,
        worker: str = "",
    ) -> Session:
        """A new session; "" makes an id. Raises: SessionExists, SessionQuotaExceeded."""
        if id and self.peek(id, now) is not None:
            raise SessionExists(f"session {id!r} exists")
        if len(self._sessions) >= self._limits.max_sessions:
            self.sweep(now)
        if len(self._sessions) >= self._limits.max_sessions:
            self._refuse(f"there are {len(self._sessions)} sessions, as many as may be")
        session = Session(
            id or self._new_id(),
            ttl_s=self._limits.session_ttl_s if ttl_s is None else ttl_s,
            affinity=affinity or self._limits.affinity,
            worker=worker,
        )
        self._check(session, data, (), {})
        self._insert(session, now + session.ttl_s)
        self._write(session, data, (), {})
        self.stats.created += 1
        self.changes.append(self.put_of(session))
        return session

    def peek(self, id: str, now: float) -> Session | None:
        """The session, without using it; None: it never was, has expired or was deleted."""
        self.stats.lookups += 1
        session = self._sessions.get(id)
        if session is not None and session.expires <= now:
            self._wheel.remove(session.tick, session)
            self._expire(session)
            return None
        return session

    def touch(self, id: str, now: float, ttl_s: float | None = None) -> Session | None:
        """Use the session: it lives `ttl_s` from now on (and always, if given)."""
        session = self._sessions.get(id)
        if session is None or session.expires <= now:
            return self.peek(id, now)
        self.stats.lookups += 1
        if ttl_s is not None and ttl_s != session.ttl_s:
            session.ttl_s = ttl_s
            self._change(session, now, ttl=ttl_s)
        else:
            self.use(session, now)
        return session

    def use(self, session: Session, now: float) -> None:
        """As `touch`, of a session that was just looked up."""
        # One that is lent counts as used at the end of that.
        session.expires = max(now + session.ttl_s, session.expires if session.lent else 0.0)
        self.touched[session.id] = session.expires

    def lend(self, session: Session, loan: object, now: float, seconds: float) -> None:
        """It is used elsewhere for so long, or until `unlend`."""
        self.use(session, now + seconds)
        session.lent = loan

    get = touch

    def update(
        self,
        id: str,
        now: float,
        *,
        set: Mapping[str, Raw],
        delete: Sequence[str] = (),
        ttl_s: float | None = None,
        affinity: Affinity | None = None,
        worker: str | None = None,
    ) -> Session:
        """Change it by key. Raises: SessionNotFound, SessionQuotaExceeded (nothing is changed)."""
        session = self._found(id, now)
        self._check(session, set, delete, {})
        if set or delete:
            self._write(session, set, delete, {})
        session.ttl_s = session.ttl_s if ttl_s is None else ttl_s
        session.affinity = affinity or session.affinity
        session.worker = session.worker if worker is None else worker
        self._change(session, now, set=set, delete=delete, ttl=ttl_s, aff=affinity, wk=worker)
        return session

    def delete(self, id: str, now: float) -> bool:
        """End it; False: there was none."""
        session = self.peek(id, now)
        if session is None:
            return False
        self._wheel.remove(session.tick, session)
        self._remove(session)
        self.stats.deleted += 1
        self.changes.append(Removed(id))
        return True

    def count(self, id: str, now: float, by: Mapping[str, int]) -> Counts:
        """Add to counters; their new values. Raises: SessionNotFound, SessionQuotaExceeded."""
        session = self._found(id, now)
        self._check(session, {}, (), by)
        if by:
            self._write(session, {}, (), by)
        self._change(session, now, cnt=by)
        return {name: session.counters[name] for name in by}

    def apply(self, id: str, delta: Delta, now: float) -> Session | None:
        """What a call changed. None: the session is gone, and the change with it.

        Raises: SessionQuotaExceeded (nothing is changed).
        """
        session = self.peek(id, now)
        if session is None:
            return None
        self._check(session, delta.set, delta.delete, delta.cnt)
        self._write(session, delta.set, delta.delete, delta.cnt)
        self._change(session, now, set=delta.set, delete=delta.delete, cnt=delta.cnt)
        return session

    def check(self, id: str, delta: Delta, now: float) -> None:
        """Whether `apply` would do it. Raises: SessionQuotaExceeded."""
        session = self.peek(id, now)
        if session is not None:
            self._check(session, delta.set, delta.delete, delta.cnt)

    def prefer(self, session: Session, worker: str, now: float) -> None:
        """The worker at which it runs from now on, if it may choose."""
        if session.worker != worker:
            session.worker = worker
            self._change(session, now, wk=worker)

    def sweep(self, now: float, limit: int = SLICE) -> int:
        """Free the memory of expired ones. It looks at no more than `limit`; gives how many that
        were, so that fewer than `limit` means: these were all.
        """
        looked_at = 0
        with closing(self._wheel.due(now)) as due:
            for session in islice(due, limit):
                looked_at += 1
                if session.expires > now:  # it was used since
                    session.tick = self._wheel.add(session, session.expires)
                else:
                    self._expire(session)
        return looked_at

    def page(self, after: str, limit: int, now: float) -> list[Session]:
        """The next ones by id, for an operator; sorts them all."""
        ids = sorted(id for id in self._sessions if id > after)
        found = (self._sessions[id] for id in ids)
        return [session for session in found if session.expires > now][:limit]

    def take_touched(self) -> Touched | None:
        """What `touched` holds as one record, and empty it; None: nothing."""
        if not self.touched:
            return None
        times = {id: self._to_wall_us(at) for id, at in self.touched.items()}
        self.touched.clear()
        return Touched(times)

    def put_of(self, session: Session) -> Put:
        """The record that makes the session anew; its maps are copies."""
        return Put(
            id=session.id,
            v=session.version,
            ttl=session.ttl_s,
            x=self._to_wall_us(session.expires),
            d=dict(session.data),
            c=dict(session.counters),
            aff=session.affinity,
            wk=session.worker,
        )

    def snapshot(self) -> Iterator[Put]:
        """Records that make all of them anew. Sessions may come and go while it is read."""
        for id in list(self._sessions):
            session = self._sessions.get(id)
            if session is not None:
                yield self.put_of(session)

    def _found(self, id: str, now: float) -> Session:
        session = self.peek(id, now)
        if session is None:
            raise SessionNotFound(f"there is no session {id!r}")
        return session

    def _expire(self, session: Session) -> None:
        self._remove(session)
        self.stats.expired += 1

    def _change(self, session: Session, now: float, **what: Any) -> None:
        """A change is a use; note it for the journal."""
        if session.lent is not None:
            self.unlend(session)
        session.expires = now + session.ttl_s
        self.touched.pop(session.id, None)
        counters = {name: session.counters[name] for name in what.pop("cnt", ())}
        changed = {name: session.data[name] for name in what.pop("set", ())}
        self.changes.append(
            Changed(
                id=session.id,
                v=session.version,
                x=self._to_wall_us(session.expires),
                set=changed,
                cnt=counters,
                delete=list(what.pop("delete", ())),
                **what,
            )
        )
