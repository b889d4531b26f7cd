"""Streams, consumer groups and dead letters."""

from cordata.broker.message import Claimed, Depth, Held, Message, Outcome, Relayed
from cordata.broker.owner import Owner, Owners, mark_of, pid_of
from cordata.broker.store import StoreBroker

__all__ = [
    "Claimed",
    "Depth",
    "Held",
    "Message",
    "Outcome",
    "Owner",
    "Owners",
    "Relayed",
    "StoreBroker",
    "mark_of",
    "pid_of",
]
