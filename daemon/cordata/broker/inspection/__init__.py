"""Events, dead letters and groups as an operator sees and corrects them."""

from cordata.broker.inspection.dead import DeadLetters
from cordata.broker.inspection.group import GroupInUse, Groups
from cordata.broker.inspection.outbox import Outbox, delete_done
from cordata.broker.inspection.record import (
    BadPosition,
    Entry,
    Filter,
    Group,
    Letter,
    Page,
    Progress,
    Replayed,
    UnknownGroup,
    WholeEntry,
    WholeLetter,
)

__all__ = [
    "BadPosition",
    "DeadLetters",
    "Entry",
    "Filter",
    "Group",
    "GroupInUse",
    "Groups",
    "Letter",
    "Outbox",
    "Page",
    "Progress",
    "Replayed",
    "UnknownGroup",
    "WholeEntry",
    "WholeLetter",
    "delete_done",
]
