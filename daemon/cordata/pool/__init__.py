"""The pool of warm processes: the workers' children, which run commands, and their clients.

Its public names are those of the clients, imported at first use: a child needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

_PLACES = {
    "Call": "cordata.pool.call",
    "Client": "cordata.pool.client",
    "SessionInfo": "cordata.pool.session_api",
    "SyncClient": "cordata.pool.sync",
}

if TYPE_CHECKING:
    from cordata.pool.call import Call as Call
    from cordata.pool.client import Client as Client
    from cordata.pool.session_api import SessionInfo as SessionInfo
    from cordata.pool.sync import SyncClient as SyncClient

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'cordata.pool' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(place), name)
    globals()[name] = value
    return value
