"""The event store: streams of events, and the positions of its subscriptions.

These names are public; the other modules of the package are for the runtime's subscriptions.
"""

from cordata.eventstore.log import EventLog
from cordata.eventstore.record import EventPage, NewEvent, StoredEvent
from cordata.eventstore.store import EventStore

__all__ = ["EventLog", "EventPage", "EventStore", "NewEvent", "StoredEvent"]
