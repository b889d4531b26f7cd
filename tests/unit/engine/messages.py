"""Messages as a broker claims them, for rules that never ask one."""

from __future__ import annotations

from cordata.broker import Message
from cordata.core.outbox import LIVE


def message(
    id: int, *, group: str = "g", lane: str = LIVE, order_key: str | None = None
) -> Message:
    """A first attempt at an event without content."""
    return Message(
        id=id,
        group=group,
        event_id=f"e{id}",
        type="t",
        key=order_key,
        payload="{}",
        headers="{}",
        created_at=0,
        attempts=0,
        history=None,
        seen=False,
        lane=lane,
        order_key=order_key,
    )
