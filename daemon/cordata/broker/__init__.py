"""The queue of events: consumer groups, claims and dead letters."""

from cordata.broker.contract import Broker
from cordata.broker.message import (
    Claimed,
    Depth,
    Message,
    MessageId,
    Outcome,
    Want,
    Wants,
    give_back,
)
from cordata.broker.queue import Queue

__all__ = [
    "Broker",
    "Claimed",
    "Depth",
    "Message",
    "MessageId",
    "Outcome",
    "Queue",
    "Want",
    "Wants",
    "give_back",
]
