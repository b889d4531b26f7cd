"""`cordata server --reload`: starts the server again when a file of the application changes.

    a file changes --> can the application be imported? --no--> its traceback; the server goes on
                          | yes
                          v
                       stop the server, start it again on the same sockets

The server is another process, so that each start imports everything anew. The sockets are this
process's: connections wait in their queues meanwhile.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from cordata import exit_codes
from cordata.app_loader import load
from cordata.config import Document
from cordata.config.sections import AppConfig
from cordata.errors import ConfigError, CordataError
from cordata.log import logger
from cordata.supervisor import listen as listening
from cordata.supervisor.child import outcome
from cordata.supervisor.spawn import Start, spawn
from cordata.terminal import report

if TYPE_CHECKING:
    from watchfiles import Change

log = logger("cordata.server")

#: What an application is made of; not its data, which the server itself changes.
_SUFFIXES = (".py", ".sql", ".toml", ".html", ".j2", ".jinja")
#: Python takes bytecode for that of any text of the same size and second: of two that are saved
#: within a second it would serve the first. So none is written.
_NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
#: How often the end of the server is looked for, and the end of a check of the application.
_POLL_MS, _CHECK_POLL_S = 200, 0.02
_PACKAGES = Path(__file__).parents[2]
_MACHINERY = ("<frozen ", os.path.dirname(importlib.__file__), os.fspath(_PACKAGES / "cordata"))
_CHECK = f"""
import sys
sys.path.insert(0, {os.fspath(_PACKAGES)!r})
from cordata.supervisor.reload import check
sys.exit(check(*(word or None for word in sys.argv[1:])))
"""


class _Flag:
    """As `threading.Event`, but a signal handler may set it: there is no lock, which the code that
    the signal interrupts may hold.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


class Reloader:
    """Runs a server and restarts it until a signal ends both."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        listen: Sequence[str],
        config: str | None,
        app: str | None,
        directories: Sequence[Path],
    ) -> None:
        """`arguments` are those of the server: of `cordata server`, without --reload and --listen.
        `directories` are watched with all that is in them.

        Raises: CordataError without watchfiles, ConfigError in a service of systemd.
        """
        # systemd sets it to the process that it starts itself: systemd.exec(5).
        if os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()):
            raise ConfigError("--reload is for development, not for a service of systemd")
        self._watch = _watcher()
        self._arguments = list(arguments)
        self._listen = listen
        self._to_check = (config or "", app or "")
        self._directories = directories
        #: A signal has come.
        self._stopping = _Flag()
        self._pid = 0

    def run(self) -> int:
        """Blocks until SIGINT, SIGTERM or SIGHUP; from the main thread only. Returns 0."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stopping.set())
        self._sockets = listening.open_all(self._listen)
        try:
            log.info("watching %s", ", ".join(map(str, self._directories)))
            begun = False  # the first time when changes are seen, so that none is missed
            for changed in self._watch(self._directories, self._stopping):
                self._look_after()
                if changed:
                    log.info("changed: %s", ", ".join(changed))
                if changed or not begun:
                    self._restart()
                begun = True
        finally:
            self._stop()
            listening.close(self._sockets)
        return 0

    def _restart(self) -> None:
        argv = [sys.executable, "-P", "-B", "-c", _CHECK, *self._to_check]
        # Ctrl-C reaches only this process.
        null = subprocess.DEVNULL
        with subprocess.Popen(argv, stdin=null, start_new_session=True) as checking:
            while checking.poll() is None:
                if self._stopping.is_set():  # an import may hang
                    checking.kill()
                    return
                time.sleep(_CHECK_POLL_S)
        if checking.returncode:
            state = "the server goes on with the former code" if self._pid else "nothing is served"
            log.error("the application cannot be used; %s until a file changes", state)
            return
        self._stop()
        sockets = [("http", sock.fileno()) for sock in self._sockets]
        self._pid = spawn(
            Start(arguments=self._arguments, environment=_NO_BYTECODE, sockets=sockets)
        )

    def _stop(self) -> None:
        """End the server in order. It bounds its stop itself."""
        if self._pid:
            os.kill(self._pid, signal.SIGTERM)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _look_after(self) -> None:
        if self._pid:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._pid = 0
                log.error("the server %s; it starts again when a file changes", outcome(status)[1])


def check(config: str | None, app: str | None) -> int:
    """Import the application and check the configuration. Returns 0, or what is wrong is printed,
    with the application's part of the traceback.
    """
    try:
        load(config, app)
    except ConfigError as error:
        cause: BaseException | None = error
        while isinstance(cause, CordataError):
            cause = cause.__cause__
        if cause is not None:
            trace = cause.__traceback__
            while trace is not None and trace.tb_next and _is_machinery(trace.tb_frame.f_code):
                trace = trace.tb_next
            traceback.print_exception(cause.with_traceback(trace))
        report(error)
        return exit_codes.CONFIG
    return 0


def _is_machinery(code: CodeType) -> bool:
    """Whether a frame is of the import system, or of this package, and not of the application."""
    return code.co_filename.startswith(_MACHINERY)


def directories_of(document: Document, section: AppConfig) -> list[Path]:
    """The directories of the application: [app] path, that of its package, that of the
    configuration file.
    """
    found = list(section.path)
    if document.path is not None:
        found.append(document.path.parent)
    sys.path[:0] = map(os.fspath, section.path)
    try:
        spec = importlib.util.find_spec(section.import_.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.submodule_search_locations:
        found += map(Path, spec.submodule_search_locations)
    real = sorted({one.resolve() for one in found if one.is_dir()})
    return [one for one in real if not any(other in one.parents for other in real)]


def _watcher() -> Callable[[Sequence[Path], _Flag], Iterator[list[str]]]:
    """A function that yields the changed files, and [] at each timeout. Raises: CordataError."""
    try:
        import watchfiles
    except ImportError as error:
        hint = "apt install python3-watchfiles, or in a virtual environment: pip install watchfiles"
        raise CordataError("--reload needs the library watchfiles", hint=hint) from error
    usual = watchfiles.DefaultFilter()  # no caches, no virtual environments, no .git

    def wanted(change: Change, path: str) -> bool:
        return path.endswith(_SUFFIXES) and usual(change, path)

    def watch(directories: Sequence[Path], stop: _Flag) -> Iterator[list[str]]:
        for changes in watchfiles.watch(
            *directories,
            watch_filter=wanted,
            stop_event=stop,
            rust_timeout=_POLL_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            yield sorted({path for _, path in changes})

    return watch
