"""Notifications to the service manager over $NOTIFY_SOCKET; see sd_notify(3)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Self

_MAX_STATUS_CHARS = 500
#: Of EXTEND_TIMEOUT_USEC=, which is sent again every few seconds.
_EXTEND_USEC = 30_000_000
#: First line of messages that are kept while the manager does not read; all others are dropped.
_STATES = ("READY=1", "RELOADING=1", "STOPPING=1")


def is_booted() -> bool:
    """Whether systemd is the init of this host: sd_booted(3)."""
    from systemd import daemon  # 5 ms, which the processes of a service do not need

    return bool(daemon.booted())


def watchdog_usec(environ: Mapping[str, str] = os.environ) -> int:
    """Microseconds within which the manager expects a notification; 0: there is no watchdog.

    With $WATCHDOG_PID of another process the variable was inherited, and does not count.
    """
    pid = environ.get("WATCHDOG_PID", "")
    usec = environ.get("WATCHDOG_USEC", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return 0
    return int(usec)


class Notifier:
    """Sends state to the service manager; without one every call does nothing.

    Each call is one datagram, and a status is sent only when it changed. No call waits for a
    manager that does not read, such as a `cordata server` that was stopped: one of the next calls
    sends the changes of state, and a status.
    """

    def __init__(self) -> None:
        """Connects to $NOTIFY_SOCKET."""
        self._notifier = None
        self._status = ""
        #: Messages that the manager has not taken yet.
        self._unsent: list[str] = []
        if os.environ.get("NOTIFY_SOCKET"):
            import sdnotify

            notifier = sdnotify.SystemdNotifier()
            if notifier.socket is not None:
                notifier.socket.setblocking(False)
                notifier.debug = True  # so that `notify` raises
                self._notifier = notifier

    def ready(self, status: str = "") -> None:
        """READY=1: the role is up, or done reloading."""
        self._send("READY=1", *self._status_line(status))

    def status(self, text: str) -> None:
        """STATUS=: one line for `systemctl status`."""
        self._send(*self._status_line(text))

    def stopping(self) -> None:
        """STOPPING=1: the ordered shutdown has begun."""
        self._send("STOPPING=1", *self._status_line("stopping"))

    def reloading(self) -> None:
        """RELOADING=1 with the current time, in one datagram as Type=notify-reload requires."""
        now_usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_usec}")

    def extend_timeout(self, status: str) -> None:
        """EXTEND_TIMEOUT_USEC=: the start may take 30 s from now, longer if sent again."""
        self._send(f"EXTEND_TIMEOUT_USEC={_EXTEND_USEC}", *self._status_line(status))

    def watchdog(self) -> None:
        """WATCHDOG=1: the event loop turns and every service's heartbeat is fresh."""
        self._send("WATCHDOG=1")

    def flush(self) -> bool:
        """Send the changes of state that wait. Returns whether none waits any more."""
        self._send()
        return not self._unsent

    def close(self) -> None:
        """Close the socket; further calls do nothing."""
        self._send()
        if self._notifier is not None:
            self._notifier.socket.close()
        self._notifier = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _status_line(self, text: str) -> list[str]:
        line = " ".join(text.split())[:_MAX_STATUS_CHARS]
        if not line or line == self._status:
            return []
        self._status = line
        return [f"STATUS={line}"]

    def _send(self, *lines: str) -> None:
        """Send a message of these lines, if there are any, after those that wait."""
        if self._notifier is None:
            return
        if lines:
            self._unsent.append("\n".join(lines))
        try:
            while self._unsent:
                # sdnotify encodes as latin-1; this gives it the bytes of UTF-8.
                self._notifier.notify(self._unsent[0].encode().decode("latin-1"))
                del self._unsent[0]
        except BlockingIOError:
            self._unsent = [message for message in self._unsent if message.startswith(_STATES)]
            self._status = ""  # so that it is sent again
        except OSError:
            self._unsent.clear()  # the manager is gone
