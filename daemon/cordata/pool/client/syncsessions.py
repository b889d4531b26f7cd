"""Sessions and globals of the sync client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cordata.core.pool.message import Affinity, GlobalOp, Reply, SessionOp
from cordata.pool.client.sessions import SessionInfo, creating, info_of, updating
from cordata.pool.client.wire import plain, values_of


class SyncSessions:
    """As `Sessions`."""

    def __init__(self, ask: Callable[[SessionOp | GlobalOp], Reply]) -> None:
        self._ask = ask

    def create(
        self,
        id: str = "",
        *,
        data: Mapping[str, object] | None = None,
        ttl_s: float | None = None,
        affinity: Affinity | None = None,
        worker: str = "",
    ) -> SessionInfo:
        """A new session; "" makes an id."""
        return info_of(self._ask(creating(id, data, ttl_s, affinity, worker)))

    def get(self, id: str, *, peek: bool = False) -> SessionInfo:
        """What it holds."""
        return info_of(self._ask(SessionOp(id=0, op="get", s=id, peek=peek)))

    def update(
        self,
        id: str,
        *,
        set: Mapping[str, object] | None = None,
        delete: Iterable[str] = (),
        ttl_s: float | None = None,
        affinity: Affinity | None = None,
        worker: str | None = None,
    ) -> SessionInfo:
        """Change it by key."""
        return info_of(self._ask(updating(id, set, delete, ttl_s, affinity, worker)))

    def delete(self, id: str) -> None:
        """End it."""
        self._ask(SessionOp(id=0, op="delete", s=id))

    def touch(self, id: str, ttl_s: float | None = None) -> None:
        """Use it."""
        self._ask(SessionOp(id=0, op="touch", s=id, ttl=ttl_s))

    def count(self, id: str, **by: int) -> Mapping[str, int]:
        """Add to its counters."""
        return self._ask(SessionOp(id=0, op="count", s=id, by=by)).cnt


class SyncGlobals:
    """As `Globals`."""

    def __init__(self, ask: Callable[[SessionOp | GlobalOp], Reply]) -> None:
        self._ask = ask

    def get(self, *keys: str) -> Mapping[str, Any]:
        """Those of `keys` that exist; without keys all."""
        return plain(self._ask(GlobalOp(id=0, op="get", keys=list(keys))).set)

    def set(self, **values: object) -> None:
        """Change some by name: `set(season="winter")`, or `set(**{"tax.it": 0.22})`."""
        self._ask(GlobalOp(id=0, op="set", set=values_of(values)))

    def delete(self, *keys: str) -> None:
        """Forget some."""
        self._ask(GlobalOp(id=0, op="delete", delete=list(keys)))
