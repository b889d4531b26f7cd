"""The event store: streams of events that are kept, and how far its subscriptions are.

These names are public; what the runtime has for its subscriptions is in the modules below.
"""

from cordata.eventstore.log import EventLog
from cordata.eventstore.record import EventPage, NewEvent, StoredEvent
from cordata.eventstore.store import EventStore

__all__ = ["EventLog", "EventPage", "EventStore", "NewEvent", "StoredEvent"]
