"""The API of sessions and globals for callers of the pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from msgspec import Raw

from cordata.errors import ProtocolError
from cordata.pool.client.values import decode_values, encode_value
from cordata.pool.shared.protocol import (
    MAX_TTL_S,
    Affinity,
    GlobalRequest,
    Reply,
    SessionRequest,
    SessionState,
    check_names,
    encode,
    from_control_client,
)

Ask = Callable[[SessionRequest | GlobalRequest], Awaitable[Reply]]
R = TypeVar("R", SessionRequest, GlobalRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session, as it was when the pool answered."""

    id: str
    #: Grows with every change of its data or counters.
    version: int
    #: Seconds until it ends, unless it is used before.
    ttl_s: float
    data: Mapping[str, Any]
    counters: Mapping[str, int]
    #: What its calls do when its worker is not free: `hint`, `strict_queue` or `strict_fail`.
    affinity: str
    #: The worker at which its calls run; "": none yet.
    worker: str


class Sessions:
    """Data that outlives a call: a session ends when it was not used for its `ttl_s`.

    A call names its session; its command reads and changes it without a round trip. All of these
    raise PoolUnavailable, PoolRestarted (a change that may have been made), DeadlineExceeded, and
    for arguments that no worker accepts ValueError, TypeError and FrameTooLarge.
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
        """Create a session; `id` "" generates one. Raises: SessionExists, SessionQuotaExceeded."""
        request = SessionRequest(
            number=0,
            operation="create",
            session=id,
            ttl_s=ttl_s,
            set=_values(data or {}),
            affinity=_known(affinity),
            worker=worker or None,
        )
        return await self._one(request)

    async def get(self, id: str, *, peek: bool = False) -> SessionInfo:
        """The session with its data; counts as a use, unless `peek`. Raises: SessionNotFound."""
        return await self._one(SessionRequest(number=0, operation="get", session=id, peek=peek))

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
        """Change values by name, and options; counts as a use. Raises: SessionNotFound,
        SessionQuotaExceeded (nothing is changed).
        """
        request = SessionRequest(
            number=0,
            operation="update",
            session=id,
            ttl_s=ttl_s,
            set=_values(set or {}),
            delete=list(delete),
            affinity=_known(affinity),
            worker=worker,
        )
        return await self._one(request)

    async def delete(self, id: str) -> None:
        """End the session. Raises: SessionNotFound."""
        await self._ask(_checked(SessionRequest(number=0, operation="delete", session=id)))

    async def count(self, id: str, **by: int) -> Mapping[str, int]:
        """Add to counters and return their new values. Raises: SessionNotFound,
        SessionQuotaExceeded.
        """
        request = SessionRequest(number=0, operation="count", session=id, count=by)
        return (await self._ask(_checked(request))).counts

    async def page(self, after: str, limit: int) -> list[SessionState]:
        """Sessions by id, without their data; for operators."""
        request = SessionRequest(number=0, operation="page", after=after, limit=limit)
        return (await self._ask(_checked(request))).sessions

    async def _one(self, request: SessionRequest) -> SessionInfo:
        state = (await self._ask(_checked(request))).sessions[0]
        return SessionInfo(
            id=state.id,
            version=state.version,
            ttl_s=state.expires_in_s,
            data=decode_values(state.data),
            counters=dict(state.counters),
            affinity=state.affinity,
            worker=state.worker,
        )


class Globals:
    """Values that all sessions share. The methods raise the same as those of Sessions."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def get(self, *keys: str) -> Mapping[str, Any]:
        """The globals among `keys` that exist; without keys all."""
        request = GlobalRequest(number=0, operation="get", keys=list(keys))
        return decode_values((await self._ask(_checked(request))).values)

    async def set(self, **values: object) -> None:
        """Set globals by name: `set(season="winter")`, or `set(**{"tax.it": 0.22})`. Raises:
        SessionQuotaExceeded.
        """
        request = GlobalRequest(number=0, operation="change", set=_values(values))
        await self._ask(_checked(request))

    async def delete(self, *keys: str) -> None:
        """Delete globals by name."""
        request = GlobalRequest(number=0, operation="change", delete=list(keys))
        await self._ask(_checked(request))


def may_repeat(request: SessionRequest | GlobalRequest) -> bool:
    """Whether the request may be sent again: a second run changes nothing more."""
    if isinstance(request, SessionRequest) and request.operation == "update":
        return not (request.set or request.delete)
    return request.operation in ("get", "page", "stats")


def _values(data: Mapping[str, object]) -> dict[str, Raw]:
    return {key: encode_value(value) for key, value in data.items()}


def _checked(request: R) -> R:
    """The request. Raises: ValueError if a worker would refuse it, TypeError for a name that is not
    a str.
    """
    if isinstance(request, GlobalRequest):
        check_names((*request.set, *request.delete, *request.keys))
    else:
        check_names((request.session, request.worker or "", request.after))
        check_names((*request.set, *request.delete, *request.count))
        if request.ttl_s is not None and not 0.0 <= request.ttl_s <= MAX_TTL_S:
            raise ValueError(f"ttl_s is {request.ttl_s}, it must be 0 to {MAX_TTL_S:.0f}")
    try:
        from_control_client.decode(encode(request))
    except ProtocolError as error:
        raise ValueError(f"invalid {request.operation} request: {error}") from None
    return request


def _known(affinity: Affinity | None) -> Affinity | None:
    """The affinity for a request. Raises: ValueError for an unknown one."""
    known = get_args(Affinity)
    if affinity and affinity not in known:
        raise ValueError(f"affinity is {affinity!r}, it must be one of {', '.join(known)}")
    return affinity or None
