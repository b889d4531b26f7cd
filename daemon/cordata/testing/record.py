"""Records for assertions in tests: payloads are objects, times are aware datetimes in UTC."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cordata.broker.inspection import WholeDeadLetter
from cordata.clock import from_us
from cordata.core.inline_image import InlineImage, read_inline_images
from cordata.store import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """An event that was written."""

    id: str
    type: str
    key: str | None
    payload: Mapping[str, Any]
    headers: Mapping[str, str]
    priority: int
    #: "pending" until every consumer group has handled it, then "done", or "dead" when one gave up.
    state: str
    #: When it is due, or was.
    due_at: datetime
    created_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> OutboxEntry:
        """As the store has it."""
        return cls(
            id=row["id"],
            type=row["type"],
            key=row["key"],
            payload=json.loads(row["payload"]),
            headers=json.loads(row["headers"]),
            priority=row["priority"],
            state=row["state"],
            due_at=from_us(row["due_at"]),
            created_at=from_us(row["created_at"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A mail in the store; a test sends none."""

    message_id: str
    to: Sequence[str]
    subject: str
    text: str
    html: str | None
    #: Pictures that the HTML shows.
    inline: Sequence[InlineImage]
    created_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Mail:
        """As the store has it."""
        return cls(
            message_id=row["message_id"],
            to=json.loads(row["to"]),
            subject=row["subject"],
            text=row["text"],
            html=row["html"],
            inline=read_inline_images(row["inline"]),
            created_at=from_us(row["created_at"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An event that a consumer group gave up."""

    event_id: str
    type: str
    group: str
    payload: Mapping[str, Any]
    attempts: int
    #: Of the last attempt: `ValueError: no boxes left`.
    error: str | None
    dead_at: datetime

    @classmethod
    def of(cls, letter: WholeDeadLetter) -> DeadLetter:
        """As the operator sees it."""
        return cls(
            event_id=letter.event_id,
            type=letter.type,
            group=letter.group,
            payload=json.loads(letter.payload),
            attempts=letter.attempts,
            error=letter.error,
            dead_at=from_us(letter.dead_at),
        )
