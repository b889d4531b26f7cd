"""Events, dead letters and groups as an operator sees and corrects them."""

from cordata.broker.inspection.dead import DeadLetters
from cordata.broker.inspection.group import GroupInUse, Groups
from cordata.broker.inspection.outbox import Outbox, delete_done
from cordata.broker.inspection.record import (
    BadPosition,
    Filter,
    Group,
    Letter,
    OutboxEvent,
    Page,
    Progress,
    Replayed,
    UnknownGroup,
    WholeLetter,
    WholeOutboxEvent,
)

__all__ = [
    "BadPosition",
    "DeadLetters",
    "Filter",
    "Group",
    "GroupInUse",
    "Groups",
    "Letter",
    "Outbox",
    "OutboxEvent",
    "Page",
    "Progress",
    "Replayed",
    "UnknownGroup",
    "WholeLetter",
    "WholeOutboxEvent",
    "delete_done",
]
