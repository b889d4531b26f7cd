"""Sessions and globals as their users see them; the frames and answers that both clients share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from cordata.core.pool.message import Affinity, GlobalOp, Reply, SessionOp
from cordata.pool.client.wire import plain, values_of

Ask = Callable[[SessionOp | GlobalOp], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session, as it was when the manager answered."""

    id: str
    #: Grows with every change of its data or counters.
    version: int
    #: Seconds until it ends, if nobody uses it before.
    ttl_s: float
    data: Mapping[str, Any]
    counters: Mapping[str, int]
    #: What its calls do when its worker is not free: `hint`, `strict_queue` or `strict_fail`.
    affinity: str
    #: The worker at which its calls run; "": none yet.
    worker: str


def info_of(reply: Reply) -> SessionInfo:
    """The session that a reply tells of."""
    return SessionInfo(
        id=reply.s,
        version=reply.v,
        ttl_s=reply.ttl or 0.0,
        data=plain(reply.set),
        counters=dict(reply.cnt),
        affinity=reply.aff,
        worker=reply.wk,
    )


def creating(
    id: str,
    data: Mapping[str, object] | None,
    ttl_s: float | None,
    affinity: Affinity | None,
    worker: str,
) -> SessionOp:
    """The frame of `create`."""
    return SessionOp(
        id=0,
        op="create",
        s=id,
        ttl=ttl_s,
        set=values_of(data or {}),
        aff=_known(affinity),
        wk=worker or None,
    )


def updating(
    id: str,
    set: Mapping[str, object] | None,
    delete: Iterable[str],
    ttl_s: float | None,
    affinity: Affinity | None,
    worker: str | None,
) -> SessionOp:
    """The frame of `update`."""
    return SessionOp(
        id=0,
        op="update",
        s=id,
        ttl=ttl_s,
        set=values_of(set or {}),
        delete=list(delete),
        aff=_known(affinity),
        wk=worker,
    )


def _known(affinity: Affinity | None) -> Affinity | Literal[""]:
    """As it travels. Raises: ValueError."""
    known = get_args(Affinity)
    if affinity and affinity not in known:
        raise ValueError(f"affinity is {affinity!r}, it must be one of {', '.join(known)}")
    return affinity or ""


class Sessions:
    """Data that outlives a call, with an end: a session unused for its `ttl_s` is gone.

    A call names its session; its command reads and changes it without a round trip. All of these
    raise PoolUnavailable, PoolRestarted (a change that may have been made) and DeadlineExceeded.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def create(
        self,
        id: str = "",
        *,
        data: Mapping[str, object] | None = None,
        ttl_s: float | None = None,
        affinity: Affinity | None = None,
        worker: str = "",
    ) -> SessionInfo:
        """A new session; "" makes an id. Raises: SessionExists, SessionQuotaExceeded."""
        return info_of(await self._ask(creating(id, data, ttl_s, affinity, worker)))

    async def get(self, id: str, *, peek: bool = False) -> SessionInfo:
        """What it holds. It counts as a use, unless `peek`. Raises: SessionNotFound."""
        return info_of(await self._ask(SessionOp(id=0, op="get", s=id, peek=peek)))

    async def update(
        self,
        id: str,
        *,
        set: Mapping[str, object] | None = None,
        delete: Iterable[str] = (),
        ttl_s: float | None = None,
        affinity: Affinity | None = None,
        worker: str | None = None,
    ) -> SessionInfo:
        """Change it by key. Raises: SessionNotFound, SessionQuotaExceeded (nothing is changed)."""
        return info_of(await self._ask(updating(id, set, delete, ttl_s, affinity, worker)))

    async def delete(self, id: str) -> None:
        """End it. Raises: SessionNotFound."""
        await self._ask(SessionOp(id=0, op="delete", s=id))

    async def touch(self, id: str, ttl_s: float | None = None) -> None:
        """Use it: it lives on, `ttl_s` from now on and from each later use. Raises:
        SessionNotFound.
        """
        await self._ask(SessionOp(id=0, op="touch", s=id, ttl=ttl_s))

    async def count(self, id: str, **by: int) -> Mapping[str, int]:
        """Add to its counters; gives their new values. Raises: SessionNotFound,
        SessionQuotaExceeded.
        """
        return (await self._ask(SessionOp(id=0, op="count", s=id, by=by))).cnt


class Globals:
    """Values that all sessions share. They raise as Sessions do."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def get(self, *keys: str) -> Mapping[str, Any]:
        """Those of `keys` that exist; without keys all."""
        return plain((await self._ask(GlobalOp(id=0, op="get", keys=list(keys)))).set)

    async def set(self, **values: object) -> None:
        """Change some by name: `set(season="winter")`, or `set(**{"tax.it": 0.22})`. Raises:
        SessionQuotaExceeded.
        """
        await self._ask(GlobalOp(id=0, op="set", set=values_of(values)))

    async def delete(self, *keys: str) -> None:
        """Forget some."""
        await self._ask(GlobalOp(id=0, op="delete", delete=list(keys)))
