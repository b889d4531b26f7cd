"""Streams, consumer groups and dead letters."""

from cordata.broker.contract import Broker
from cordata.broker.message import Claimed, Depth, Due, Held, Message, Outcome, Relayed, Want
from cordata.broker.owner import Owner, Owners, mark_of, pid_of
from cordata.broker.store import StoreBroker

__all__ = [
    "Broker",
    "Claimed",
    "Depth",
    "Due",
    "Held",
    "Message",
    "Outcome",
    "Owner",
    "Owners",
    "Relayed",
    "StoreBroker",
    "Want",
    "mark_of",
    "pid_of",
]
