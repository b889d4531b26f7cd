"""cordata: runs Python services on systemd, as workers and one primary that share durable events.

These names are the public API, with those of cordata.errors (all errors), cordata.eventstore,
cordata.subscription, cordata.pool (clients), cordata.testing, cordata.terminal and
cordata.supervisor. All are in docs/reference/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

#: The module of each public name, imported at the first use: a command imports only what it needs.
_PLACES = {
    "App": "cordata.app",
    "Event": "cordata.context",
    "Context": "cordata.context",
    "EventContext": "cordata.context",
    "BackfillContext": "cordata.context",
    "EventStore": "cordata.eventstore",
    "NewEvent": "cordata.eventstore",
    "StoredEvent": "cordata.eventstore",
    "SubscriptionContext": "cordata.subscription",
    "Store": "cordata.store",
    "Tx": "cordata.store",
    "Row": "cordata.store",
    "InlineImage": "cordata.core.inline_image",
    "connect": "cordata.command_context",
    "current_call": "cordata.pool.child.current",
    "Config": "cordata.config",
    "from_us": "cordata.clock",
    "to_us": "cordata.clock",
    "fields": "cordata.log",
    "LogThrottle": "cordata.log",
    "request_id": "cordata.log",
    "Trace": "cordata.trace",
    "current_trace": "cordata.trace",
    "CordataError": "cordata.errors",
    "ConfigError": "cordata.errors",
    "TransientError": "cordata.errors",
    "PermanentError": "cordata.errors",
    "Conflict": "cordata.errors",
    "KeyReused": "cordata.errors",
    "StoreUnavailable": "cordata.errors",
    "PoolError": "cordata.errors",
    "CommandFailed": "cordata.errors",
}

if TYPE_CHECKING:
    from cordata.app import App as App
    from cordata.clock import from_us as from_us
    from cordata.clock import to_us as to_us
    from cordata.command_context import connect as connect
    from cordata.config import Config as Config
    from cordata.context import BackfillContext as BackfillContext
    from cordata.context import Context as Context
    from cordata.context import Event as Event
    from cordata.context import EventContext as EventContext
    from cordata.core.inline_image import InlineImage as InlineImage
    from cordata.errors import CommandFailed as CommandFailed
    from cordata.errors import ConfigError as ConfigError
    from cordata.errors import Conflict as Conflict
    from cordata.errors import CordataError as CordataError
    from cordata.errors import KeyReused as KeyReused
    from cordata.errors import PermanentError as PermanentError
    from cordata.errors import PoolError as PoolError
    from cordata.errors import StoreUnavailable as StoreUnavailable
    from cordata.errors import TransientError as TransientError
    from cordata.eventstore import EventStore as EventStore
    from cordata.eventstore import NewEvent as NewEvent
    from cordata.eventstore import StoredEvent as StoredEvent
    from cordata.log import LogThrottle as LogThrottle
    from cordata.log import fields as fields
    from cordata.log import request_id as request_id
    from cordata.pool.child.current import current_call as current_call
    from cordata.store import Row as Row
    from cordata.store import Store as Store
    from cordata.store import Tx as Tx
    from cordata.subscription import SubscriptionContext as SubscriptionContext
    from cordata.trace import Trace as Trace
    from cordata.trace import current_trace as current_trace

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'cordata' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(place), name)
    globals()[name] = value
    return value
