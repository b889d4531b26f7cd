"""The queue of events: consumer groups, claims and dead letters."""

from cordata.broker.contract import Broker
from cordata.broker.message import (
    Claimed,
    ClaimLimit,
    ClaimLimits,
    Message,
    MessageId,
    Outcome,
    give_back,
)
from cordata.broker.queue import Queue

__all__ = [
    "Broker",
    "ClaimLimit",
    "ClaimLimits",
    "Claimed",
    "Message",
    "MessageId",
    "Outcome",
    "Queue",
    "give_back",
]
