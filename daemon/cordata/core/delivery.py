"""What becomes of one message in one consumer group after an attempt.

    ready ──claim──> claimed ──handled──> (gone; its mark in `handled` stays)
      ^                 │
      ├──gave back──────┤   the worker stops: the attempt is not counted
      ├──its owner died─┤   alone in its hands: counted; else a suspect, and claimed alone next
      ├──failed─────────┤   attempts + 1, due again after a back-off
      │                 └──last attempt, or a permanent error──> dead
      └──retried by an operator────────────────────────────────┘

Attempts are counted when a message is claimed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeGuard

from cordata.errors import CordataError, PermanentError, StoreUnavailable, TransactionTimeout

#: A worker claims what it handles within this time.
_HORIZON_S = 0.25
#: Characters of an error's text that are kept.
ERROR_CHARS = 500
#: The error of an attempt that ended with its process.
DIED = "ProcessDied: the process died while the handler ran"
#: Failed attempts whose errors are kept; the oldest go first, the very first stays.
HISTORY_ENTRIES = 20


class Verdict(Enum):
    """What to do with a message."""

    DONE = "done"
    #: Was not tried: as if it had never been claimed.
    BACK = "back"
    #: Not its fault (the store was away): again after a pause, no attempt counted.
    DEFER = "defer"
    RETRY = "retry"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed attempt, as kept in the message's history."""

    #: 1 is the first delivery.
    attempt: int
    #: Microseconds since the epoch.
    at: int
    #: The process that tried.
    owner: str
    error: str


def is_permanent(error: BaseException) -> bool:
    """Whether it would fail again however often it is tried."""
    return isinstance(error, PermanentError)


def is_away(error: BaseException) -> TypeGuard[StoreUnavailable]:
    """Whether the store was away for an attempt, which does not count then.

    It was there for a read that took too long: only the handler could make that one shorter.
    """
    return isinstance(error, StoreUnavailable) and not isinstance(error, TransactionTimeout)


def after_failure(attempt: int, *, retries: int, permanent: bool) -> Verdict:
    """The verdict after the `attempt`-th attempt failed; `retries` come after the first."""
    return Verdict.DEAD if permanent or attempt > retries else Verdict.RETRY


def error_text(error: BaseException) -> str:
    """`Type: message (hint)`, on one line and bounded, for a row that an operator reads.

    Of characters that a store refuses (NUL, halves of surrogate pairs, as in undecodable file
    names) their escapes are kept.
    """
    try:
        message = str(error)
        if isinstance(error, CordataError) and error.hint:
            message += f" ({error.hint})"
    except Exception:  # noqa: BLE001 - an application's own class
        message = "(its text cannot be had)"
    message = " ".join(message.split()).replace("\0", "\\x00")
    text = f"{type(error).__name__}: {message}".encode("utf-8", "backslashreplace").decode()
    return text[:ERROR_CHARS].rstrip(": ")


def add_failure(history: str | None, failure: Failure) -> str:
    """The JSON list of failures with one more at its end, bounded to HISTORY_ENTRIES."""
    entries = json.loads(history) if history else []
    entries.append(asdict(failure))
    if len(entries) > HISTORY_ENTRIES:
        entries = [entries[0], *entries[1 - HISTORY_ENTRIES :]]
    return json.dumps(entries, ensure_ascii=False)


def read_failures(history: str | None) -> list[Mapping[str, Any]]:
    """The failures in a history, the first first; none when the text is damaged, which is no reason
    to show nothing of its message.
    """
    try:
        return list(json.loads(history or "[]"))
    except ValueError:
        return []


def prefetch_count(mean_s: float, *, concurrency: int, batch: int) -> int:
    """Messages that one worker should hold: what it handles within _HORIZON_S.

    Fast handlers then get whole batches, slow ones leave the rest to other workers. `mean_s` is
    the mean duration of one handler, 0 before the first.
    """
    if mean_s <= 0.0:
        return min(concurrency, batch)
    return max(min(int(concurrency * _HORIZON_S / mean_s), batch), min(concurrency, batch))


def mean_duration_s(mean_s: float, durations_s: Sequence[float]) -> float:
    """The moving mean after further durations; the first ones count at once."""
    for duration_s in durations_s:
        mean_s = duration_s if mean_s <= 0.0 else 0.9 * mean_s + 0.1 * duration_s
    return mean_s


def low_places(concurrency: int) -> int:
    """Slots of a group that messages with a priority below 0 may take at once."""
    return max(1, concurrency // 4)


def run_length(mean_s: float, *, batch: int) -> int:
    """Messages of one key that a worker should claim together: what it handles within _HORIZON_S.

    They are handled one after the other, so no other worker is kept from them meanwhile. `mean_s`
    is the mean duration of one handler, 0 before the first.
    """
    if mean_s <= 0.0:
        return 1
    return max(1, min(int(_HORIZON_S / mean_s), batch))
