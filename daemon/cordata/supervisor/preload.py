"""Imports once what all children need, so that they are forked and share it.

A child that is forked gets what this process has: an application that starts threads or opens files
when it is imported is not for that, and neither is one that cannot be imported. Then each child is
executed and imports it by itself.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came that stops the server. No error: what is imported may not handle it."""


def preload(config: str | Path | None, app: str | None, *, timeout_s: float) -> str:
    """Import the application and the runtime. Returns why no child can be forked now; "": it can.

    Raises: Interrupted. An import that takes longer than `timeout_s` ends this process with a trace
    of every thread.
    """
    opened = _descriptors()
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    gc.disable()
    try:
        with _interruptible():
            # As in a child that is executed: no directory of whatever command started this one.
            own = [] if sys.flags.safe_path else sys.path[:1]
            sys.path[: len(own)] = [os.fspath(Path(__file__).parents[2])]
            from cordata.wiring.preload import import_all

            import_all(config, app)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the application's own modules
        return f"here it fails with {type(error).__name__}"
    finally:
        gc.enable()
        faulthandler.cancel_dump_traceback_later()
    gc.collect()
    gc.freeze()  # what is here stays, and the collector writes to none of its pages
    if more := _descriptors() - opened:
        names = ", ".join(sorted(_name_of(fd) for fd in more))
        return f"the import opens {names}"
    return has_threads()


def has_threads() -> str:
    """Why this process cannot be forked; "": it can. Threads of libraries count, too."""
    count = len(os.listdir("/proc/self/task"))
    return f"the import starts threads ({count - 1})" if count > 1 else ""


def _descriptors() -> set[str]:
    return {fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")}


def _name_of(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return fd


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    before = {number: signal.signal(number, _interrupt) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted
