"""The records in an App's registries, one for each use of a decorator, and their bounds."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cordata.context import BackfillContext, Context, Event, EventContext
from cordata.errors import ConfigError

HandlerFunction = Callable[[Event, EventContext], Awaitable[None]]
Startup = Callable[[Context], Awaitable[None]]
Check = Callable[[Context], Awaitable[Sequence[str]]]
Backfill = Callable[[BackfillContext, str | None], Awaitable[str | None]]
Job = Callable[[Context, str, str], Awaitable[None]]
#: Tells which (scope, period) are due at a moment, oldest first; missed ones included.
Due = Callable[[Context, datetime], Awaitable[Iterable[tuple[str, str]]]]
Periodic = Callable[[Context], Awaitable[None]]
AsgiApp = Callable[..., Awaitable[None]]

#: Each slot of a group is a task of the worker.
MAX_CONCURRENCY = 1000
#: More attempts than that take years.
MAX_RETRIES = 1000
MAX_ROWS = 100_000
#: Shorter than any call takes, longer than any process lives.
SHORTEST_S, LONGEST_S = 0.001, 31_536_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What `@app.on` declares: a function that handles one event type, as one consumer group."""

    type: str
    #: Consumer group; each message goes to exactly one worker of a group.
    group: str
    function: HandlerFunction
    #: Attempts after the first before the message goes to the dead letter.
    retries: int
    #: Handlers running at once in one worker; None: [engine] concurrency.
    concurrency: int | None
    #: Seconds for one attempt.
    timeout_s: float
    #: Events of one key one at a time, in their order.
    key: bool = False
    #: Whether what the handler passes to `ctx.run` is batched.
    batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillTask:
    """Work of the primary after READY, in small units, with a stored cursor."""

    name: str
    run: Backfill
    #: Rows of one step.
    batch: int
    #: For one step.
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """Work started by a timer, once per (job, scope, period)."""

    name: str
    run: Job
    #: None: each UTC day, scope "".
    due: Due | None
    #: Seconds after which a claim whose process does not renew it may be taken over.
    claim_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicTask:
    """Work of the primary, again and again."""

    name: str
    run: Periodic
    #: From the end of one run to the start of the next.
    seconds: float
    #: For one run.
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """An ASGI application below a path prefix ("" for all)."""

    prefix: str
    app: AsgiApp
    #: Segments below the prefix that the log shows; None: all.
    logged_segments: int | None = None
    #: Begins the text of the connection layer's own errors; None: they are JSON.
    error_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTask:
    """A function that the pool's children run."""

    name: str
    #: `module:function`: what a child imports.
    at: str
    #: None: named by its place, and not imported here.
    function: Callable[..., Any] | None
    #: Deadline of a call that names none, in seconds; None: as `[pool] call_timeout_s` has it.
    timeout_s: float | None = None
    #: Whether a call runs again when its process died.
    idempotent: bool = False
    #: How often; None: as `[pool] retries` has it.
    retries: int | None = None


def wrong_seconds(name: str, value: object) -> str | None:
    """The problem of a time, or None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if SHORTEST_S <= value <= LONGEST_S:
            return None
    return f"{name} must be more than 0 seconds, {LONGEST_S:,} at most, not {value!r}"


def wrong_count(name: str, value: object, low: int, high: int) -> str | None:
    """The problem of a count, or None."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return None
    return f"{name} must be {low} or more, a whole number, {high:,} at most, not {value!r}"


def wrong_text(name: str, value: object, chars: int) -> str | None:
    """The problem of a name that is stored with every message, or None."""
    if isinstance(value, str) and 1 <= len(value) <= chars and "\0" not in value:
        return None
    shown = repr(value)[:60]
    return f"{name} must be a text of 1 to {chars} characters without NUL, not {shown}"


def check_function(function: Callable[..., Any], where: str, *arguments: str) -> None:
    """Check what a decorator got: an async function that can be called with these arguments.

    A plain function would block the loop, and its result would never be awaited. Raises:
    ConfigError.
    """
    name = getattr(function, "__name__", repr(function))
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"@app.{where}: {name} must be an async function")
    try:
        # Of the function itself: a decorator may pass more to the one that it wraps.
        inspect.signature(function, follow_wrapped=False).bind(*arguments)
    except TypeError as error:
        call = f"{name}({', '.join(arguments)})"
        raise ConfigError(f"@app.{where}: {name} is called as {call}: {error}") from None


_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


def check_place(at: str, where: str) -> str:
    """Returns `module:function` as it is. Raises: ConfigError when it is no such name."""
    if not _PLACE.match(at):
        raise ConfigError(
            f"{where}: {at!r} is not module:function", hint='for example at="shop.pdf:render"'
        )
    return at


def place_of(function: Any, where: str, *, takes_arguments: bool = False) -> str:
    """`module:function`, by which another process finds it and calls it.

    Raises: ConfigError.
    """
    name = getattr(function, "__qualname__", repr(function))
    bound = inspect.ismethod(function) and not inspect.isclass(function.__self__)
    if (
        bound
        or not inspect.isroutine(function)
        or not _PLACE.match(f"{function.__module__}:{name}")
    ):
        raise ConfigError(
            f"{where}: {name} is no function of a module",
            hint="a child imports it by its name: no lambda, none within another function",
        )
    if function.__module__ == "__main__":
        raise ConfigError(
            f"{where}: {name} is in the program itself, which a child does not run",
            hint="put it into a module",
        )
    if takes_arguments:
        return f"{function.__module__}:{name}"
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ConfigError(f"{where}: {name} is called as {name}(): {error}") from None
    except ValueError:
        pass  # a builtin that does not tell
    return f"{function.__module__}:{name}"
