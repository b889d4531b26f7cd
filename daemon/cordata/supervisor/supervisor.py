"""Runs primary and workers in the foreground, with the same contract as systemd.

    starting --> running --signal, or no worker left--> workers stop --> the primary stops --> end

A crash is logged and makes the exit code 1; the other processes go on. Works as PID 1 of a
container: it reaps every zombie, also those that are not its children.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from cordata import clock, events, exit_codes
from cordata.config import Config, build, find_file, open_document
from cordata.config.pool import PoolConfig
from cordata.errors import ConfigError, CordataError, StoreUnavailable, is_transient
from cordata.log import fields, logger
from cordata.supervisor import listen as listening
from cordata.supervisor.child import START_TIMEOUT_S, Child, children, outcome
from cordata.supervisor.notify import NotifySocket
from cordata.supervisor.preload import Interrupted, has_threads, preload
from cordata.supervisor.spawn import Program, Start, spawn
from cordata.systemd import Notifier

log = logger("cordata.server")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
#: Longest pause between two passes, while a child has a deadline or the manager does not read. A
#: pass that comes later than _STILL_S after the one before shows that this process stood still.
_LOOK_S, _STILL_S = 1.0, 2.0
#: How long the workers may take at the stop to accept the connections that wait. With 300 clients,
#: and as many new connections as they can make, 4 workers took 0.1 s, and all that waited were
#: answered; when the sockets were closed after the workers, 300 were reset after 0.5 s.
_ACCEPT_S = 1.0


class Supervisor:
    """Runs one primary and N workers until a signal, or until no worker is left."""

    def __init__(
        self,
        *,
        app: str | None = None,
        workers: int = 1,
        listen: Sequence[str] = (),
        config: str | Path | None = None,
        state: str | Path | None = None,
        test_mode: bool = False,
        debug: bool = False,
        restart: bool = False,
        stop_timeout_s: float = 35.0,
        watchdog_s: float = 10.0,
        on_ready: Callable[[Sequence[str]], None] | None = None,
        program: Program | None = None,
    ) -> None:
        """Starts nothing before `run()`.

        `app` is `module:attribute` (None: as configured). `listen` are addresses to bind; empty:
        the sockets systemd passed, else 127.0.0.1:8080. `state` is a directory for all files of
        this server: the store, `run/` for wake-ups, and `credentials/` if it exists.
        `test_mode`: workers handle all waiting events, then exit. `restart`: children that end, by
        a crash or by a TERM from outside, start again, with growing pauses. `stop_timeout_s`: as
        TimeoutStopSec= of the units, so longer than what the configuration gives a role.
        `watchdog_s` 0: no watchdog. `on_ready` is called once, with the URLs, when all are
        ready. `program` runs `cordata` with the given arguments in the calling process: with it
        the application is imported here, once, and children are forked; None: each is executed.
        """
        self.exit_code = 0
        self._listen = list(listen)
        self._state = Path(state).absolute() if state is not None else None
        self._test_mode = test_mode
        self._restart = restart
        self._stop_timeout_s = stop_timeout_s
        self._watchdog_s = watchdog_s
        self._on_ready = on_ready
        self._app, self._config = app, config
        self._program = program
        self._children = children(workers, config=config, app=app, debug=debug, test_mode=test_mode)
        self._sockets: list[socket.socket] = []
        self._notify = NotifySocket()
        self._manager = Notifier()
        self._stopping = False
        self._announced = False
        #: When the last pass began.
        self._passed_at = 0.0

    def run(self) -> int:
        """Blocks until all children are gone; from the main thread only. Returns `exit_code`.

        0: all ended cleanly; 1: one crashed or had to be killed; 78: one could not use its
        configuration. Raises: ConfigError, CordataError when an address cannot be bound.
        """
        try:
            self._open_sockets()
            with _wakeups() as wakeups, selectors.DefaultSelector() as selector:
                selector.register(wakeups, selectors.EVENT_READ)
                selector.register(self._notify, selectors.EVENT_READ)
                self._preload()
                self._take_signals(wakeups)
                for child in self._children:
                    if not self._stopping:
                        self._start(child)
                self._passed_at = clock.monotonic()
                while any(child.state != "gone" for child in self._children):
                    selector.select(self._timeout_s())
                    self._note_pass()
                    self._take_signals(wakeups)
                    self._take_notifications()
                    self._reap()
                    self._act_on_deadlines()
                    self._advance()
        finally:
            self._notify.close()
            self._manager.close()
            self._close_sockets()
        return self.exit_code

    def stop(self) -> None:
        """Stop the workers, then the primary, each within `stop_timeout_s`. May be called twice."""
        if self._stopping:
            return
        self._stopping = True
        self._manager.stopping()
        in_order = sorted(self._children, key=lambda child: not child.is_worker)
        log.info("stopping: %s", ", ".join(c.name for c in in_order if c.alive))
        self._close_sockets()
        for child in self._children:
            if child.state == "waiting":
                child.state = "gone"
            elif child.is_worker and child.alive:
                child.stop(clock.monotonic() + self._stop_timeout_s)

    def _open_sockets(self) -> None:
        found = _configured(self._config, {**os.environ, **self._directories()})
        if found is not None:
            _warn_of_absent(found.pools, self._children)
        if self._test_mode:
            return
        self._sockets = listening.open_all(self._listen)

    def _close_sockets(self) -> None:
        """Refuse new connections. Workers that were not told to stop yet accept those that wait."""
        serving = any(child.is_worker and child.alive for child in self._children)
        sockets, self._sockets = self._sockets, []
        listening.close(sockets, patience_s=_ACCEPT_S if serving else 0.0)

    def _preload(self) -> None:
        if self._program is None:
            return
        os.environ.update(self._directories())  # a module may read them at import
        try:
            reason = preload(self._config, self._app, timeout_s=START_TIMEOUT_S)
        except Interrupted:
            return  # the signal waits to be taken
        if reason:
            self._program = None
            log.info("each process imports the application by itself: %s", reason)

    def _start(self, child: Child) -> None:
        environment = {"NOTIFY_SOCKET": self._notify.address}
        if self._watchdog_s:
            environment["WATCHDOG_USEC"] = str(int(self._watchdog_s * 1e6))
        sockets = [("http", sock.fileno()) for sock in self._sockets] if child.is_worker else []
        try:
            environment.update(self._directories())
            start = Start(arguments=child.arguments, environment=environment, sockets=sockets)
            pid = spawn(start, None if has_threads() else self._program)
        except OSError as error:  # no process or no memory is left
            self._gone(child, f"cannot be started: {error.strerror}")
            return
        except CordataError as error:  # its directories have gone, and cannot be made again
            self._gone(child, f"cannot be started: {error}")
            return
        child.started(pid, clock.monotonic())
        log.debug("%s started as %d", child.name, child.pid)

    def _directories(self) -> Mapping[str, str]:
        if self._state is None:
            return {}
        # Made here, with mode 0700: the store makes files, but no directories.
        runtime, credentials = self._state / "run", self._state / "credentials"
        for directory in (self._state, runtime):
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                text = f"{directory} cannot be created: {error.strerror}"
                raise (StoreUnavailable if is_transient(error) else ConfigError)(text) from error
        found = {"STATE_DIRECTORY": str(self._state), "CORDATA_RUNTIME": str(runtime)}
        if credentials.is_dir() and "CREDENTIALS_DIRECTORY" not in os.environ:
            found["CREDENTIALS_DIRECTORY"] = str(credentials)
        return found

    def _timeout_s(self) -> float | None:
        now = clock.monotonic()
        deadlines = [child.deadline for child in self._children if child.deadline is not None]
        if not self._manager.flush():  # nothing else says that the manager reads again
            deadlines.append(now + _LOOK_S)
        return min(_LOOK_S, max(0.0, min(deadlines) - now)) if deadlines else None

    def _note_pass(self) -> None:
        """Note that this process runs. What the children have to send may come later by the time
        for which it was stopped, or wrote to a stopped terminal: it could not read that.
        """
        now = clock.monotonic()
        still_s, self._passed_at = now - self._passed_at, now
        if still_s > _STILL_S:
            for child in self._children:
                child.postpone(still_s)

    def _take_signals(self, wakeups: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in wakeups.recv(4096):
                if number != signal.SIGCHLD:
                    self.stop()

    def _take_notifications(self) -> None:
        by_pid = {child.pid: child for child in self._children if child.alive}
        for pid, message in self._notify.receive():
            child = by_pid.get(pid)
            if child is None:
                continue
            before = child.status
            if child.notified(message, clock.monotonic(), self._watchdog_s):
                log.info("%s is ready (pid %d)", child.name, pid)
            elif child.state == "starting" and child.status != before:
                log.info("%s: %s", child.name, child.status)

    def _reap(self) -> None:
        """Reap every child that ended; as PID 1 also every orphan."""
        by_pid = {child.pid: child for child in self._children if child.alive}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in by_pid:
                self._ended(by_pid[pid], status)

    def _ended(self, child: Child, status: int) -> None:
        clean, text = outcome(status)
        if child.aborted_for:
            text = f"{text} ({child.aborted_for})"
        unusable = os.waitstatus_to_exitcode(status) == exit_codes.CONFIG
        self._gone(child, text, clean=clean, unusable=unusable)

    def _gone(
        self, child: Child, text: str, *, clean: bool = False, unusable: bool = False
    ) -> None:
        """A child has ended, or could not be started; `text` says how."""
        stopping = self._stopping
        # In test mode a child that exited with 0 has done its work.
        wanted = self._restart and not (unusable or (clean and self._test_mode))
        again = not stopping and wanted
        pid = child.pid
        name = f"{child.name} (pid {pid})" if pid else child.name
        child.ended(clock.monotonic(), again=again)
        if clean:
            log.info("%s %s%s", child.name, text, _next_start(child))
            return
        extra = fields(events.SERVER_CHILD_CRASHED, child=child.name, child_pid=pid)
        stays_down = not (again or stopping or unusable)
        following = _next_start(child)
        if stays_down and child.is_worker and not self._test_mode:
            following = "; it is not started again, see --restart"
        log.error("%s %s%s", name, text, following, extra=extra)
        if stays_down and not child.is_worker:
            text = "the %s stays down, and its work undone: --restart starts it again"
            log.error(text, child.name)
        self.exit_code = exit_codes.CONFIG if unusable else self.exit_code or 1
        if unusable:  # they all read the same file
            self.stop()

    def _act_on_deadlines(self) -> None:
        now = clock.monotonic()
        for child in self._children:
            due = child.overdue(now)
            if due is not None:
                number, reason = due
                log.error("%s %s: %s", child.name, reason, number.name)
                child.send(number)
            elif child.state == "waiting" and child.deadline is not None and now >= child.deadline:
                self._start(child)

    def _advance(self) -> None:
        """Act on the states of the children: report ready, stop the primary after the workers."""
        if not self._announced and all(child.state == "ready" for child in self._children):
            self._announced = True
            self._manager.ready(f"{len(self._children) - 1} workers ready")
            if self._on_ready is not None:
                self._on_ready([listening.url_of(sock) for sock in self._sockets])
        if all(child.state == "gone" for child in self._children if child.is_worker):
            self.stop()
            for child in self._children:
                if child.state in ("starting", "ready"):
                    child.stop(clock.monotonic() + self._stop_timeout_s)


def _configured(config: str | Path | None, environment: Mapping[str, str]) -> Config | None:
    """The configuration; None: it is invalid, which the children report."""
    try:
        return build(open_document(find_file(config)), None, environment)
    except ConfigError:
        return None


def _warn_of_absent(pools: Mapping[str, PoolConfig], children: Sequence[Child]) -> None:
    """Warn of workers that a pool names but this server does not start: its calls would wait."""
    started = [child.name.removeprefix("worker@") for child in children if child.is_worker]
    for name, pool in pools.items():
        absent = [worker for worker in pool.workers if worker not in started]
        if absent:
            what = "worker" if len(absent) == 1 else "workers"
            alone = "" if len(absent) < len(pool.workers) else ", so no worker takes its calls"
            text = "[pool.%s] names %s %s, not started with --workers %d%s"
            log.warning(text, name, what, ", ".join(absent), len(started), alone)


def _next_start(child: Child) -> str:
    if child.deadline is None:
        return ""
    return f"; starts again in {max(0.0, child.deadline - clock.monotonic()):.1f} s"


@contextlib.contextmanager
def _wakeups() -> Iterator[socket.socket]:
    """A socket that gets signal numbers as bytes; restores the former handlers at the end."""
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    sender.setblocking(False)
    old_handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    old_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield receiver
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        receiver.close()
        sender.close()
