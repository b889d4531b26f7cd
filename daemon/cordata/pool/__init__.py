"""The pool of warm processes: the workers' children, which run commands, and their clients.

One folder for each process that runs the code:

- client/: calls commands; any process of the host may be a client
- worker/: starts, watches and replaces children
- child/: runs commands
- shared/: what they have in common: messages, files, memory
- route: HTTP in front of a client, in a worker that serves requests

The public names are those of the client, imported at first use: a child needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

_MODULES = {
    "Call": "cordata.pool.client.call",
    "Client": "cordata.pool.client.client",
    "SessionInfo": "cordata.pool.client.session_api",
    "SyncClient": "cordata.pool.client.sync",
}

if TYPE_CHECKING:
    from cordata.pool.client.call import Call as Call
    from cordata.pool.client.client import Client as Client
    from cordata.pool.client.session_api import SessionInfo as SessionInfo
    from cordata.pool.client.sync import SyncClient as SyncClient

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'cordata.pool' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
