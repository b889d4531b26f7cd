"""Notifications to the service manager over $NOTIFY_SOCKET; see sd_notify(3)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Self

_MAX_STATUS_CHARS = 500


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

    Each call is one datagram, and a status is sent only when it changed.
    """

    def __init__(self) -> None:
        """Connects to $NOTIFY_SOCKET."""
        self._notifier = None
        self._status = ""
        if os.environ.get("NOTIFY_SOCKET"):
            import sdnotify

            self._notifier = sdnotify.SystemdNotifier()

    def ready(self, status: str = "") -> None:
        """READY=1: the role is up, or done reloading."""
        self._send("READY=1", *self._status_line(status))

    def status(self, text: str) -> None:
        """STATUS=: one line for `systemctl status`."""
        self._send(*self._status_line(text))

    def stopping(self, status: str = "") -> None:
        """STOPPING=1: the ordered shutdown has begun."""
        self._send("STOPPING=1", *self._status_line(status))

    def reloading(self) -> None:
        """RELOADING=1 with the current time, in one datagram as Type=notify-reload requires."""
        now_usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={now_usec}")

    def extend_timeout(self, seconds: float, status: str = "") -> None:
        """EXTEND_TIMEOUT_USEC=: start or stop may take this long from now, longer if sent again."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}", *self._status_line(status))

    def watchdog(self) -> None:
        """WATCHDOG=1: the event loop turns and every service's heartbeat is fresh."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        """Close the socket; further calls do nothing."""
        if self._notifier is not None and self._notifier.socket is not None:
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
        if self._notifier is not None and lines:
            # sdnotify encodes as latin-1; this gives it the bytes of UTF-8.
            self._notifier.notify("\n".join(lines).encode().decode("latin-1"))
