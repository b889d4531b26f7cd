"""cordata: runs a Python service as a rope team on systemd. These names are the public API."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

#: Where each public name lives. Imported at first use: a command that needs one pays for one.
_PLACES = {
    "App": "cordata.app",
    "Event": "cordata.core.event",
    "Context": "cordata.context",
    "EventContext": "cordata.context",
    "BackfillContext": "cordata.context",
    "EventLog": "cordata.eventstore",
    "EventPage": "cordata.eventstore",
    "EventStore": "cordata.eventstore",
    "NewEvent": "cordata.eventstore",
    "StoredEvent": "cordata.eventstore",
    "Subscription": "cordata.subscription",
    "SubscriptionContext": "cordata.subscription",
    "Store": "cordata.store",
    "Tx": "cordata.store",
    "Row": "cordata.store",
    "Inline": "cordata.core.picture",
    "Supervisor": "cordata.supervisor",
    "connect": "cordata.connection",
    "current_call": "cordata.pool.child.current",
    "Config": "cordata.config",
    "from_us": "cordata.clock",
    "to_us": "cordata.clock",
    "fields": "cordata.log",
    "request_id": "cordata.log",
    "CordataError": "cordata.errors",
    "ConfigError": "cordata.errors",
    "TransientError": "cordata.errors",
    "PermanentError": "cordata.errors",
    "Conflict": "cordata.errors",
    "KeyReused": "cordata.errors",
    "WrongExpectedVersion": "cordata.errors",
    "PartitionLost": "cordata.errors",
    "StoreUnavailable": "cordata.errors",
    "StoreFull": "cordata.errors",
    "Unclear": "cordata.errors",
    "PoolError": "cordata.errors",
    "CommandFailed": "cordata.errors",
    "CommandRefused": "cordata.errors",
    "CommandUnknown": "cordata.errors",
    "CommandPoisoned": "cordata.errors",
    "WorkerCrashed": "cordata.errors",
    "DeadlineExceeded": "cordata.errors",
    "QueueTimeout": "cordata.errors",
    "CallCancelled": "cordata.errors",
    "PoolSaturated": "cordata.errors",
    "PoolUnavailable": "cordata.errors",
    "PoolRestarted": "cordata.errors",
    "PoolClosed": "cordata.errors",
    "FrameTooLarge": "cordata.errors",
    "SessionNotFound": "cordata.errors",
    "SessionExists": "cordata.errors",
    "SessionQuotaExceeded": "cordata.errors",
    "PreferredWorkerBusy": "cordata.errors",
}

if TYPE_CHECKING:
    from cordata.app import App as App
    from cordata.clock import from_us as from_us
    from cordata.clock import to_us as to_us
    from cordata.config import Config as Config
    from cordata.connection import connect as connect
    from cordata.context import BackfillContext as BackfillContext
    from cordata.context import Context as Context
    from cordata.context import EventContext as EventContext
    from cordata.core.event import Event as Event
    from cordata.core.picture import Inline as Inline
    from cordata.errors import CallCancelled as CallCancelled
    from cordata.errors import CommandFailed as CommandFailed
    from cordata.errors import CommandPoisoned as CommandPoisoned
    from cordata.errors import CommandRefused as CommandRefused
    from cordata.errors import CommandUnknown as CommandUnknown
    from cordata.errors import ConfigError as ConfigError
    from cordata.errors import Conflict as Conflict
    from cordata.errors import CordataError as CordataError
    from cordata.errors import DeadlineExceeded as DeadlineExceeded
    from cordata.errors import FrameTooLarge as FrameTooLarge
    from cordata.errors import KeyReused as KeyReused
    from cordata.errors import PartitionLost as PartitionLost
    from cordata.errors import PermanentError as PermanentError
    from cordata.errors import PoolClosed as PoolClosed
    from cordata.errors import PoolError as PoolError
    from cordata.errors import PoolRestarted as PoolRestarted
    from cordata.errors import PoolSaturated as PoolSaturated
    from cordata.errors import PoolUnavailable as PoolUnavailable
    from cordata.errors import PreferredWorkerBusy as PreferredWorkerBusy
    from cordata.errors import QueueTimeout as QueueTimeout
    from cordata.errors import SessionExists as SessionExists
    from cordata.errors import SessionNotFound as SessionNotFound
    from cordata.errors import SessionQuotaExceeded as SessionQuotaExceeded
    from cordata.errors import StoreFull as StoreFull
    from cordata.errors import StoreUnavailable as StoreUnavailable
    from cordata.errors import TransientError as TransientError
    from cordata.errors import Unclear as Unclear
    from cordata.errors import WorkerCrashed as WorkerCrashed
    from cordata.errors import WrongExpectedVersion as WrongExpectedVersion
    from cordata.eventstore import EventLog as EventLog
    from cordata.eventstore import EventPage as EventPage
    from cordata.eventstore import EventStore as EventStore
    from cordata.eventstore import NewEvent as NewEvent
    from cordata.eventstore import StoredEvent as StoredEvent
    from cordata.log import fields as fields
    from cordata.log import request_id as request_id
    from cordata.pool.child.current import current_call as current_call
    from cordata.store import Row as Row
    from cordata.store import Store as Store
    from cordata.store import Tx as Tx
    from cordata.subscription import Subscription as Subscription
    from cordata.subscription import SubscriptionContext as SubscriptionContext
    from cordata.supervisor import Supervisor as Supervisor

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'cordata' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(place), name)
    globals()[name] = value
    return value
