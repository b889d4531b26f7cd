"""What an operator sees of the engine, and what he puts right by hand."""

from cordata.broker.inspection.dead import DeadLetters
from cordata.broker.inspection.outbox import Outbox
from cordata.broker.inspection.record import (
    BadPosition,
    Entry,
    Filter,
    Letter,
    Page,
    WholeEntry,
    WholeLetter,
)

__all__ = [
    "BadPosition",
    "DeadLetters",
    "Entry",
    "Filter",
    "Letter",
    "Outbox",
    "Page",
    "WholeEntry",
    "WholeLetter",
]
