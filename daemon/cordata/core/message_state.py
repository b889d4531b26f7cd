"""The next state of a message in a consumer group after an attempt.

    ready ──claim──> claimed ──handled──> (gone; its mark in `handled` stays)
      ^                 │
      ├──given back─────┤   the worker stops: the attempt is not counted
      ├──owner died─────┤   suspect, so claimed alone next; counted if it was alone, or a suspect
      ├──failed─────────┤   due again after a back-off; until then `scheduled`, or of a key `ready`
      │                 └──last attempt, or a permanent error──> dead
      └──retried by an operator────────────────────────────────┘

Attempts are counted when a message is claimed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeGuard

from cordata.errors import CordataError, PermanentError, StoreUnavailable, TransactionTimeout

#: Characters of an error's text that are stored.
ERROR_CHARS = 500
#: The error of an attempt during which the process died.
DIED = "ProcessDied: the process died while the handler ran"
#: Failed attempts that a history has: the first one and the latest ones.
HISTORY_ENTRIES = 20


class Verdict(Enum):
    """What to do with a message."""

    DONE = "done"
    #: Not tried: give it back, as if it had never been claimed. Also when its claim was lost during
    #: the attempt: then this changes nothing.
    GIVEN_BACK = "given_back"
    #: The store was not available: try again after a pause, count no attempt.
    DEFER = "defer"
    RETRY = "retry"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed attempt in the history of a message."""

    #: 1 is the first delivery.
    attempt: int
    #: Microseconds since the epoch.
    at: int
    #: The process that tried.
    owner: str
    error: str


def is_permanent(error: BaseException) -> bool:
    """Whether another attempt would fail, too."""
    return isinstance(error, PermanentError)


def is_unavailable(error: BaseException) -> TypeGuard[StoreUnavailable]:
    """Whether an attempt failed because the store was not available; it is not counted then.

    A read that took too long is counted: the store was available, and only the handler can make the
    read shorter.
    """
    return isinstance(error, StoreUnavailable) and not isinstance(error, TransactionTimeout)


def after_failure(attempt: int, *, retries: int, permanent: bool) -> Verdict:
    """The verdict after the `attempt`-th attempt failed; `retries` come after the first."""
    return Verdict.DEAD if permanent or attempt > retries else Verdict.RETRY


def error_text(error: BaseException) -> str:
    """`Type: message (hint)`, on one line and bounded, for a row that an operator reads.

    Characters that a store refuses (NUL; halves of surrogate pairs, as in file names that cannot be
    decoded) are replaced by their escapes.
    """
    try:
        message = str(error)
        if isinstance(error, CordataError) and error.hint:
            message += f" ({error.hint})"
    except Exception:  # noqa: BLE001 - __str__ of an application's class
        message = "(str() of the error failed)"
    message = " ".join(message.split()).replace("\0", "\\x00")
    text = f"{type(error).__name__}: {message}".encode("utf-8", "backslashreplace").decode()
    return text[:ERROR_CHARS].rstrip(": ")


def add_failure(history: str | None, failure: Failure) -> str:
    """The JSON list of failures with one more at its end, bounded to HISTORY_ENTRIES."""
    entries = [*read_failures(history), asdict(failure)]
    if len(entries) > HISTORY_ENTRIES:
        entries = [entries[0], *entries[1 - HISTORY_ENTRIES :]]
    return json.dumps(entries, ensure_ascii=False)


def read_failures(history: str | None) -> list[Mapping[str, Any]]:
    """The failures in a history, oldest first; none when the text is damaged, so that the message
    can be shown anyway.
    """
    try:
        found = json.loads(history or "[]")
    except ValueError:
        return []
    return found if isinstance(found, list) else []
