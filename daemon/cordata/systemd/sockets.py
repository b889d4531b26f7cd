"""Inherited listening sockets, looked up by name; see sd_listen_fds_with_names(3)."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListenSocket:
    """One socket that systemd (or `cordata server`) passed to this process."""

    #: FileDescriptorName= of the socket unit.
    name: str
    sock: socket.socket


def listen_fds() -> list[ListenSocket]:
    """Take over the sockets passed to this process, in their order; [] when there are none.

    They are close-on-exec and non-blocking afterwards, and the variables that announced them are
    gone, so no child mistakes them for its own. A second call returns [].
    """
    if "LISTEN_FDS" not in os.environ:
        return []
    from systemd import daemon  # 5 ms, for nothing when no socket is due

    inherited = daemon.listen_fds_with_names(unset_environment=True)
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)  # the C library's unsetenv() is unknown to os.environ
    sockets = []
    for fd, name in sorted(inherited.items()):
        sock = socket.socket(fileno=fd)
        sock.set_inheritable(False)
        sock.setblocking(False)
        sockets.append(ListenSocket(name=name, sock=sock))
    return sockets
