"""One supervised child: its state, and the deadlines that apply in it.

waiting --start--> starting --READY=1--> ready --TERM--> stopping --> gone
   ^                  |                    |                           |
   +---- --restart ---+------ crash -------+---------------------------+
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cordata import exit_codes

State = Literal["waiting", "starting", "ready", "stopping", "gone"]

#: As systemd's DefaultTimeoutStartSec=; EXTEND_TIMEOUT_USEC moves it.
START_TIMEOUT_S = 90.0
#: Seconds from SIGABRT to SIGKILL, for a trace of every thread.
ABORT_GRACE_S = 2.0
RESTART_MIN_S, RESTART_MAX_S = 0.5, 30.0
#: A child that was ready for this long before it crashed starts again after the shortest pause.
STEADY_S = 2.0


@dataclass(slots=True, kw_only=True)
class Child:
    """A worker or the primary."""

    name: str
    #: Arguments of `cordata`.
    arguments: list[str]
    is_worker: bool
    state: State = "waiting"
    pid: int = 0
    #: When it became ready (monotonic); None: it has not yet.
    ready_at: float | None = None
    status: str = ""
    #: Monotonic; what is due then depends on the state: see `overdue`.
    deadline: float | None = None
    #: SIGABRT was sent for this reason; SIGKILL follows.
    aborted_for: str = ""
    restart_pause_s: float = RESTART_MIN_S

    @property
    def alive(self) -> bool:
        """Whether the process exists."""
        return self.state in ("starting", "ready", "stopping")

    def started(self, pid: int, now: float) -> None:
        """The process was started."""
        self.pid, self.state = pid, "starting"
        self.deadline, self.aborted_for, self.status = now + START_TIMEOUT_S, "", ""

    def notified(self, message: dict[str, str], now: float, watchdog_s: float) -> bool:
        """Apply one datagram. Returns whether the child just became ready."""
        became_ready = False
        self.status = message.get("STATUS", self.status)
        if message.get("READY") == "1" and self.state == "starting":
            self.state, self.ready_at = "ready", now
            became_ready = True
        if self.aborted_for:
            return became_ready
        if self.state == "ready" and watchdog_s and ("WATCHDOG" in message or became_ready):
            self.deadline = now + watchdog_s
        elif self.state == "ready" and became_ready:
            self.deadline = None
        elif self.state == "starting" and message.get("EXTEND_TIMEOUT_USEC", "").isdecimal():
            extended = now + int(message["EXTEND_TIMEOUT_USEC"]) / 1e6
            self.deadline = max(self.deadline or 0.0, extended)
        return became_ready

    def overdue(self, now: float) -> tuple[signal.Signals, str] | None:
        """The signal that is due now and why; None: none is. Sets the next deadline."""
        if self.deadline is None or now < self.deadline or not self.alive:
            return None
        if self.aborted_for or self.state == "stopping":
            self.deadline = None
            return signal.SIGKILL, self.aborted_for or "did not stop in time"
        self.aborted_for = "missed its watchdog" if self.state == "ready" else "did not get ready"
        self.deadline = now + ABORT_GRACE_S
        return signal.SIGABRT, self.aborted_for

    def postpone(self, seconds: float) -> None:
        """Give it longer to send what is due next. The end of a child that stops, or was aborted,
        does not depend on what it sends, so it stays due.
        """
        waits = self.state in ("starting", "ready") and not self.aborted_for
        if waits and self.deadline is not None:
            self.deadline += seconds

    def stop(self, deadline: float) -> None:
        """Send TERM, and CONT so that a stopped process gets it; at `deadline` it is killed."""
        self.state, self.deadline = "stopping", deadline
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        """Send a signal. The child is not reaped yet, so its pid cannot have been used again."""
        os.kill(self.pid, number)

    def ended(self, now: float, *, again: bool) -> None:
        """There is no process; `again`: start another one, after a pause that grows."""
        if self.ready_at is not None and now - self.ready_at >= STEADY_S:
            self.restart_pause_s = RESTART_MIN_S
        self.pid, self.ready_at, self.state, self.deadline = 0, None, "gone", None
        if again:
            self.state, self.deadline = "waiting", now + self.restart_pause_s
            self.restart_pause_s = min(self.restart_pause_s * 2, RESTART_MAX_S)


def children(
    workers: int,
    *,
    config: str | Path | None,
    app: str | None,
    debug: bool,
    test_mode: bool,
) -> list[Child]:
    """The primary and the workers."""
    common = ["--config", str(config)] if config is not None else []
    common += ["--debug"] if debug else []
    common += ["--app", app] if app is not None else []
    of_worker = [*common, *(["--test-mode"] if test_mode else [])]
    found = [Child(name="primary", arguments=["primary", *common], is_worker=False)]
    for number in range(workers):
        arguments = ["worker", str(number), *of_worker]
        found.append(Child(name=f"worker@{number}", arguments=arguments, is_worker=True))
    return found


def outcome(status: int) -> tuple[bool, str]:
    """(clean, text) of a wait status: exit 0 and an ordered death by TERM are clean."""
    code = os.waitstatus_to_exitcode(status)
    return code in (0, -signal.SIGTERM), exit_codes.describe(code)
