"""The pool of warm processes: its manager, its workers, their children, its clients.

Its public names are those of the clients, imported at first use: a child needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

_PLACES = {
    "Call": "cordata.pool.client.request",
    "Client": "cordata.pool.client.client",
    "SessionInfo": "cordata.pool.client.sessions",
    "SyncClient": "cordata.pool.client.sync",
}

if TYPE_CHECKING:
    from cordata.pool.client.client import Client as Client
    from cordata.pool.client.request import Call as Call
    from cordata.pool.client.sessions import SessionInfo as SessionInfo
    from cordata.pool.client.sync import SyncClient as SyncClient

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'cordata.pool' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(place), name)
    globals()[name] = value
    return value
