"""Starts child processes with systemd's contract: environment variables and descriptors."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_FIRST_FD = 3  # SD_LISTEN_FDS_START
_PR_SET_PDEATHSIG = 1
#: Descriptors of a child, as LimitNOFILE= of its unit says: a shell gives 1024, less than what
#: max_connections and the store together take.
_DESCRIPTORS = 8192
_OURS = ("LISTEN_", "WATCHDOG_", "NOTIFY_SOCKET")
# Loaded before any fork: between fork and exec nothing should have to be imported.
_libc = ctypes.CDLL(None, use_errno=True)


def command(*arguments: str) -> list[str]:
    """The argument vector of `cordata ARGUMENTS` with this very interpreter and package.

    By path, since a package in a private directory is not on the interpreter's own path; -P, so
    that the package's modules do not become top-level ones.
    """
    main = Path(__file__).parent.parent / "__main__.py"
    return [sys.executable, "-P", os.fspath(main), *arguments]


def spawn(
    argv: Sequence[str],
    environment: Mapping[str, str],
    sockets: Sequence[tuple[str, int]] = (),
) -> int:
    """Start a child in a session of its own and return its pid.

    `sockets` are (name, fd) pairs; the child gets them at 3.. with LISTEN_FDS, LISTEN_FDNAMES and
    its own LISTEN_PID, and may open as many as its unit allows. Every other descriptor above 2 is
    closed, stdin is /dev/null. The child is killed when this process dies, however it dies.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(argv, environment, sockets, parent)
    return pid


def _become(
    argv: Sequence[str],
    environment: Mapping[str, str],
    sockets: Sequence[tuple[str, int]],
    parent: int,
) -> NoReturn:
    """In the child: never returns, never runs a line of the parent's clean-up."""
    try:
        signal.set_wakeup_fd(-1)
        _raise_descriptor_limit()
        os.setsid()  # Ctrl-C reaches the supervisor alone, which keeps the order
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
        _place(sockets)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], list(argv), _environment(environment, sockets))
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
        os.write(2, f"cannot start {argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _place(sockets: Sequence[tuple[str, int]]) -> None:
    end = _FIRST_FD + len(sockets)
    # Out of the way first: a source may sit where another one has to go.
    parked = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, end) for _, fd in sockets]
    for target, fd in enumerate(parked, start=_FIRST_FD):
        os.dup2(fd, target, inheritable=True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0, inheritable=True)
    os.closerange(end, os.sysconf("SC_OPEN_MAX"))


def _environment(
    environment: Mapping[str, str], sockets: Sequence[tuple[str, int]]
) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    inherited.update(environment)
    if "WATCHDOG_USEC" in environment:
        inherited["WATCHDOG_PID"] = str(os.getpid())
    if sockets:
        inherited["LISTEN_PID"] = str(os.getpid())
        inherited["LISTEN_FDS"] = str(len(sockets))
        inherited["LISTEN_FDNAMES"] = ":".join(name for name, _ in sockets)
    return inherited


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
