"""Whether hotel software has fallen silent. Moments are microseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """What is known of one account and one of his hotels."""

    #: When it last asked for guest requests.
    came_at: int | None
    #: It need not ask: they are brought to it.
    is_brought: bool = False
    #: Not acknowledged guest requests: how many,
    waiting: int
    #: when the oldest came that is not held, and when the oldest that it got was first sent.
    oldest_at: int | None
    sent_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """What it has not done, and since when."""

    what: Literal["poll", "acknowledge"]
    since_at: int
    waiting: int

    def hours(self, now_us: int) -> int:
        """For how long, in whole hours."""
        return (now_us - self.since_at) // _HOUR_US


def staleness_of(contact: Contact, *, now_us: int, after_h: int) -> Staleness | None:
    """What the operator should know; None: all is well, or nobody asked (`after_h` 0).

    Software that never came is missed only when something waits for it: it may not be set up yet.
    """
    if after_h <= 0:
        return None
    limit_at = now_us - after_h * _HOUR_US
    if contact.is_brought:
        since_at = contact.oldest_at
        if since_at is None or since_at > limit_at:
            return None
        return Staleness(what="acknowledge", since_at=since_at, waiting=contact.waiting)
    came_at = contact.came_at
    if came_at is None:
        came_at = contact.oldest_at
    if came_at is not None and came_at <= limit_at:
        return Staleness(what="poll", since_at=came_at, waiting=contact.waiting)
    if contact.sent_at is not None and contact.sent_at <= limit_at:
        return Staleness(what="acknowledge", since_at=contact.sent_at, waiting=contact.waiting)
    return None
