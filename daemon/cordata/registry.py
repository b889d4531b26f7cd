"""The records in an App's registries, one for each use of a decorator, and their limits."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from cordata.context import BackfillContext, Context, Event, EventContext
from cordata.errors import ConfigError

HandlerFunction = Callable[[Event, EventContext], Awaitable[None]]
Startup = Callable[[Context], Awaitable[None]]
Check = Callable[[Context], Awaitable[Sequence[str]]]
Backfill = Callable[[BackfillContext, str | None], Awaitable[str | None]]
Job = Callable[[Context, str, str], Awaitable[None]]
#: Returns the (scope, period) pairs that are due at a time, oldest first, missed ones included.
Due = Callable[[Context, datetime], Awaitable[Iterable[tuple[str, str]]]]
Periodic = Callable[[Context], Awaitable[None]]
AsgiApp = Callable[..., Awaitable[None]]

#: Each concurrent handler is a task of the worker.
MAX_CONCURRENCY = 1000
#: More retries would take years.
MAX_RETRIES = 1000
MAX_ROWS = 100_000
#: Limits of all times: a millisecond, and a year.
SHORTEST_S, LONGEST_S = 0.001, 31_536_000


class Handler(Struct, frozen=True, kw_only=True):
    """A record of `@app.on`: a function that handles one event type, as one consumer group."""

    type: str
    #: Consumer group; each message goes to exactly one worker of a group.
    group: str
    function: HandlerFunction
    #: Attempts after the first one; then the message becomes a dead letter.
    retries: int
    #: Handlers running at once in one worker; None: [engine] concurrency.
    concurrency: int | None
    #: Limit of one attempt.
    timeout_s: float
    #: Whether events with the same key are handled one at a time, in their order.
    key: bool = False
    #: Whether units of work that the handler passes to `ctx.run` are batched.
    batch: bool = False


class BackfillTask(Struct, frozen=True, kw_only=True):
    """A record of `@app.backfill`: work of the primary after READY, in small resumable steps."""

    name: str
    run: Backfill
    #: Rows of one step.
    batch: int
    #: Limit of one step.
    timeout_s: float


class JobTask(Struct, frozen=True, kw_only=True):
    """A record of `@app.job`: work started by a timer, once per (job, scope, period)."""

    name: str
    run: Job
    #: None: each UTC day, scope "".
    due: Due | None
    #: A process that has not renewed its process lease for this time counts as dead.
    process_lease_s: float


class PeriodicTask(Struct, frozen=True, kw_only=True):
    """A record of `@app.every`: work that the primary repeats."""

    name: str
    run: Periodic
    #: From the end of one run to the start of the next.
    seconds: float
    #: Limit of one run.
    timeout_s: float


class Mount(Struct, frozen=True, kw_only=True):
    """An ASGI application below a path prefix ("" for all)."""

    prefix: str
    app: AsgiApp
    #: Segments below the prefix that the log shows; None: all.
    logged_segments: int | None = None
    #: First words of the HTTP server's own errors, as plain text; None: they are JSON.
    error_text: str | None = None


class CommandTask(Struct, frozen=True, kw_only=True):
    """A function that the pool's children run."""

    name: str
    #: `module:function`: what a child imports.
    at: str
    #: None: declared with `at=`, and not imported here.
    function: Callable[..., Any] | None
    #: Default timeout of a call; None: `[pool] call_timeout_s`.
    timeout_s: float | None = None
    #: Whether a call runs again when its process has died.
    idempotent: bool = False
    #: How often; None: `[pool] retries`.
    retries: int | None = None


def wrong_seconds(name: str, value: object) -> str | None:
    """The problem with a time, as a sentence that begins with `name`; None: it is valid."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if SHORTEST_S <= value <= LONGEST_S:
            return None
    return f"{name} must be more than 0 and at most {LONGEST_S:,} seconds, not {value!r}"


def wrong_count(name: str, value: object, low: int, high: int) -> str | None:
    """The problem with a count; None: it is valid."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return None
    return f"{name} must be a whole number from {low} to {high:,}, not {value!r}"


def wrong_text(name: str, value: object, chars: int) -> str | None:
    """The problem with a name that is stored with every message; None: it is valid."""
    if isinstance(value, str) and 1 <= len(value) <= chars and "\0" not in value:
        return None
    shown = repr(value)[:60]
    return f"{name} must be a string of 1 to {chars} characters without NUL, not {shown}"


def check_function(function: Callable[..., Any], where: str, *arguments: str) -> None:
    """Check the function of a decorator: it must be async and accept these arguments.

    A plain function would block the event loop. Raises: ConfigError.
    """
    name = getattr(function, "__name__", repr(function))
    if not inspect.iscoroutinefunction(function):
        raise ConfigError(f"@app.{where}: {name} must be an async function")
    try:
        # The outermost function counts: a decorator may pass other arguments to the wrapped one.
        inspect.signature(function, follow_wrapped=False).bind(*arguments)
    except TypeError as error:
        call = f"{name}({', '.join(arguments)})"
        raise ConfigError(f"@app.{where}: {name} is called as {call}: {error}") from None


_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


def check_place(at: str, where: str) -> str:
    """Returns `at`. Raises: ConfigError when it does not have the form `module:function`."""
    if not _PLACE.match(at):
        raise ConfigError(
            f"{where}: {at!r} is not module:function", hint='for example at="shop.pdf:render"'
        )
    return at


def place_of(function: Any, where: str, *, takes_arguments: bool = False) -> str:
    """`module:function`, by which another process can import the function.

    Raises: ConfigError when that is not possible, or when the function takes arguments although
    `takes_arguments` is False.
    """
    name = getattr(function, "__qualname__", repr(function))
    bound = inspect.ismethod(function) and not inspect.isclass(function.__self__)
    if (
        bound
        or not inspect.isroutine(function)
        or not _PLACE.match(f"{function.__module__}:{name}")
    ):
        raise ConfigError(
            f"{where}: {name} is not a function at the top level of a module",
            hint="a child imports it by its name: use no lambda and no nested function",
        )
    if function.__module__ == "__main__":
        raise ConfigError(
            f"{where}: {name} is in the main program, which a child does not import",
            hint="move it into a module",
        )
    if takes_arguments:
        return f"{function.__module__}:{name}"
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ConfigError(f"{where}: {name} is called as {name}(): {error}") from None
    except ValueError:
        pass  # a builtin without a signature
    return f"{function.__module__}:{name}"
