"""Inherited listening sockets, looked up by name; see sd_listen_fds_with_names(3)."""

from __future__ import annotations

import os
import socket
import sys
from typing import NoReturn

from msgspec import Struct

from cordata.errors import ConfigError


class ListenSocket(Struct, frozen=True):
    """One socket that systemd (or `cordata server`) passed to this process."""

    #: FileDescriptorName= of the socket unit.
    name: str
    sock: socket.socket


#: The sockets that `listen_fds` took over in this process.
_taken: list[ListenSocket] = []


def listen_fds() -> list[ListenSocket]:
    """Take over the sockets passed to this process, in their order; [] when there are none.

    They are close-on-exec and non-blocking afterwards, and the variables are removed, so that no
    child reads them. A second call returns the same sockets, except in a forked process with new
    variables: it takes over the sockets that these name. Raises: ConfigError if one is no stream
    socket.
    """
    if "LISTEN_FDS" not in os.environ:
        return list(_taken)
    from systemd import daemon  # 5 ms, spared when there are no sockets

    inherited = daemon.listen_fds_with_names(unset_environment=True)
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)  # the C library's unsetenv() is unknown to os.environ
    _taken.clear()
    for fd, name in sorted(inherited.items()):  # before any is taken: a second call finds none
        if not daemon.is_socket(fd, type=socket.SOCK_STREAM):
            raise ConfigError(
                f"what was passed as {name!r} is no stream socket",
                hint="name its addresses by ListenStream= in the socket unit",
            )
    for fd, name in sorted(inherited.items()):
        sock = socket.socket(fileno=fd)
        sock.set_inheritable(False)
        sock.setblocking(False)
        _taken.append(ListenSocket(name=name, sock=sock))
    return list(_taken)


def reexec() -> NoReturn:
    """Execute the command of this process again, with the sockets that it was given.

    The pid stays the same. Raises: OSError when the command cannot be executed.
    """
    if _taken:
        for entry in _taken:  # at the descriptors at which they came: 3 and those that follow
            entry.sock.set_inheritable(True)
        os.environ["LISTEN_PID"] = str(os.getpid())
        os.environ["LISTEN_FDS"] = str(len(_taken))
        os.environ["LISTEN_FDNAMES"] = ":".join(entry.name for entry in _taken)
    os.execv(sys.executable, sys.orig_argv)
