"""Imports once what all children need, so that forked children share its memory.

A forked child inherits everything of this process. So if the import of the application starts
threads, opens files or fails, no child is forked: each is executed and imports it again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NoReturn

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal to stop the server. A BaseException, so that imported code does not catch it."""


def preload(config: str | Path | None, app: str | None, *, timeout_s: float) -> str:
    """Import the application and the runtime. Returns why children cannot be forked; "": they can.

    Raises: Interrupted. An import that takes longer than `timeout_s` ends this process with a trace
    of every thread.
    """
    opened = _descriptors()
    faulthandler.dump_traceback_later(timeout_s, exit=True)
    gc.disable()
    try:
        with _interruptible():
            # As in an executed child: without the directory of the script of this process.
            own = [] if sys.flags.safe_path else sys.path[:1]
            sys.path[: len(own)] = [os.fspath(Path(__file__).parents[2])]
            import_all(config, app)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the application's own modules
        return f"the import failed here with {type(error).__name__}"
    finally:
        gc.enable()
        faulthandler.cancel_dump_traceback_later()
    gc.collect()
    gc.freeze()  # so that the collector writes to no shared page
    if more := _descriptors() - opened:
        names = ", ".join(sorted(_name_of(fd) for fd in more))
        return f"the import opens {names}"
    return has_threads()


def import_all(config: str | Path | None, app: str | None) -> None:
    """Import the application, and modules that its workers import within functions; read its SQL.

    Modules of the primary only are left out, as no process would share them. Raises: ConfigError.
    """
    from cordata.app_loader import load
    from cordata.broker.factory import is_store
    from cordata.store import Queries, dialect_of, store_class

    loaded = load(config, app)
    store_class(loaded.config.store)
    Queries.load(loaded.app.query_packages, dialect_of(loaded.config.store))
    names = [
        *("concurrent.futures.thread", "sdnotify", "systemd.daemon", "uvloop"),
        *("cordata.http", "cordata.network", "cordata.wiring.event_loop", "cordata.wiring.worker"),
        *("cordata.services.consumer", "cordata.services.idle_exit"),
        *("cordata.services.process_lease", "cordata.services.unhandled_event"),
    ]
    if loaded.app.commands:
        names += ("cordata.pool.shared.sessions", "cordata.services.pool_child")
    if loaded.app.subscriptions:
        names.append("cordata.services.subscription")
    if loaded.config.metrics.listen:
        names += ("cordata.services.local_http", "cordata.services.metrics")
    if not is_store(loaded.config.broker):
        names.append("cordata.broker.redis.broker")
    for name in names:
        import_module(name)


def has_threads() -> str:
    """Why this process cannot be forked; "": it can. Counts threads of C libraries, too."""
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
