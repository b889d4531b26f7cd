"""Logs uncaught exceptions by type and place, as all others, without their message.

Python's own hooks would print the message, which may quote personal data.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cordata import events
from cordata.log import fields, logger, without_values

if TYPE_CHECKING:  # a process without a loop, such as `cordata server`, does not import it
    import asyncio

log = logger("cordata.unhandled")


def install_hooks() -> None:
    """Install the hooks for the main program, its threads, and objects that Python deletes."""
    sys.excepthook = _process_failed
    threading.excepthook = _thread_failed
    sys.unraisablehook = _unraisable


def watch_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Install the hook for tasks, futures and callbacks of a loop that fail unobserved."""
    loop.set_exception_handler(_loop_failed)


def _process_failed(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    extra = fields(events.SERVICE_FAILED)
    log.critical("the process ends by %s", kind.__name__, exc_info=error, extra=extra)


def _thread_failed(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        name = args.thread.name if args.thread is not None else "(ended)"
        log.error("thread %s failed with %s", name, args.exc_type.__name__, exc_info=args.exc_value)


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    if args.exc_value is not None:
        kind = args.exc_type.__name__
        log.error("%s in %s was ignored", kind, _name_of(args.object), exc_info=args.exc_value)


def _loop_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The documentation of `loop.call_exception_handler` has the keys of `context`."""
    import asyncio

    error: BaseException | None = context.get("exception")
    text = without_values(context.get("message") or "an event loop has caught an exception")
    what = context.get("task") or context.get("future")
    if isinstance(what, asyncio.Task):
        text += f": {_name_of(what.get_coro())}"
    if error is not None:
        text += f" ({type(error).__name__})"
    log.error("%s", text, exc_info=error)


def _name_of(thing: object) -> str:
    """The name of a function or coroutine, else of its type: a repr may contain values."""
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))
