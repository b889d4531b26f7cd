"""Events, dead letters and groups as an operator sees and corrects them."""

from cordata.broker.inspection.dead import DeadLetters
from cordata.broker.inspection.group import count_messages, remove_group
from cordata.broker.inspection.outbox import Outbox, delete_done
from cordata.broker.inspection.record import (
    BadPosition,
    DeadLetter,
    Filter,
    OutboxEvent,
    Page,
    Progress,
    Replayed,
    UnknownGroup,
    WholeDeadLetter,
    WholeOutboxEvent,
)

__all__ = [
    "BadPosition",
    "DeadLetter",
    "DeadLetters",
    "Filter",
    "Outbox",
    "OutboxEvent",
    "Page",
    "Progress",
    "Replayed",
    "UnknownGroup",
    "WholeDeadLetter",
    "WholeOutboxEvent",
    "count_messages",
    "delete_done",
    "remove_group",
]
