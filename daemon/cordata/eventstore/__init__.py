"""The event store: streams of events that are kept, and how far its subscriptions are."""

from cordata.eventstore.log import EVENT_TOPIC, EventLog
from cordata.eventstore.partition import (
    SUBSCRIPTION_TOPIC,
    Claim,
    Partitions,
    PartitionState,
    PartitionTable,
    Worker,
)
from cordata.eventstore.record import EventPage, NewEvent, StoredEvent
from cordata.eventstore.store import EventStore

__all__ = [
    "EVENT_TOPIC",
    "SUBSCRIPTION_TOPIC",
    "Claim",
    "EventLog",
    "EventPage",
    "EventStore",
    "NewEvent",
    "PartitionState",
    "PartitionTable",
    "Partitions",
    "StoredEvent",
    "Worker",
]
