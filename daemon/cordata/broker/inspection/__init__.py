"""What an operator sees of the engine, and what he puts right by hand."""

from cordata.broker.inspection.dead import DeadLetters
from cordata.broker.inspection.outbox import Outbox
from cordata.broker.inspection.record import (
    BadPosition,
    Entry,
    Filter,
    Letter,
    Page,
    Progress,
    Replayed,
    WholeEntry,
    WholeLetter,
)
from cordata.broker.inspection.replay import UnknownGroup, publish_again

__all__ = [
    "BadPosition",
    "DeadLetters",
    "Entry",
    "Filter",
    "Letter",
    "Outbox",
    "Page",
    "Progress",
    "Replayed",
    "UnknownGroup",
    "WholeEntry",
    "WholeLetter",
    "publish_again",
]
