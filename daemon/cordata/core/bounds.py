"""What the arguments of an App's decorators may be."""

from __future__ import annotations

from cordata.core.naming import GROUP_CHARS, TYPE_CHARS

#: Each place of a group is a task of the worker.
MAX_CONCURRENCY = 1000
#: More attempts than that take years.
MAX_RETRIES = 1000
MAX_ROWS = 100_000
#: Shorter than any call takes, longer than any process lives.
SHORTEST_S, LONGEST_S = 0.001, 31_536_000


def seconds(name: str, value: object) -> str | None:
    """What is wrong with a time; None: nothing."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if SHORTEST_S <= value <= LONGEST_S:
            return None
    return f"{name} must be more than 0 seconds, {LONGEST_S:,} at most, not {value!r}"


def whole(name: str, value: object, low: int, high: int) -> str | None:
    """What is wrong with a count."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return None
    return f"{name} must be {low} or more, a whole number, {high:,} at most, not {value!r}"


def text(name: str, value: object, chars: int) -> str | None:
    """What is wrong with a name that is stored with every message."""
    if isinstance(value, str) and 1 <= len(value) <= chars and "\0" not in value:
        return None
    shown = repr(value)[:60]
    return f"{name} must be a text of 1 to {chars} characters without NUL, not {shown}"


def handler(
    type: object, group: object, *, retries: object, concurrency: object, timeout_s: object
) -> list[str]:
    """Everything that is wrong with an `@app.on`."""
    found = [
        text("the type", type, TYPE_CHARS),
        text("group", group, GROUP_CHARS),
        whole("retries", retries, 0, MAX_RETRIES),
        None if concurrency is None else whole("concurrency", concurrency, 1, MAX_CONCURRENCY),
        seconds("timeout_s", timeout_s),
    ]
    return [problem for problem in found if problem is not None]
