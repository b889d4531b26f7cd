"""One door to the children: `posix_spawn`, since a worker has threads and must not fork."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from cordata.core.pool import spec as specs
from cordata.core.pool.page import SIZE
from cordata.core.pool.spec import CHANNEL_FD, PAGE_FD, ChildSpec
from cordata.pool.fingerprint import start_of

#: What is between the worker and systemd, or a secret: nothing for a process that may crash.
_WITHHELD = (
    *("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM"),
    *("MAINPID", "MANAGERPID", "CORDATA_"),
)
#: Above what a child gets, so that no descriptor lies where another one has to go.
_PARKED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that was just started, and our ends of what we share with it."""

    pid: int
    #: Field 22 of its stat: with the pid its fingerprint.
    start: int
    #: Readable when it has died.
    pidfd: int
    #: What it writes on stdout and stderr, not blocking.
    output: int
    #: The second channel, not blocking.
    channel: socket.socket
    #: Its state page.
    page: mmap.mmap

    def close(self) -> None:
        """Our ends; the page last read stays readable nowhere."""
        os.close(self.pidfd)
        os.close(self.output)
        self.channel.close()
        self.page.close()


def spawn(spec: ChildSpec) -> Spawned:
    """Start a child, in a session of its own: a signal to its group reaches what it starts, too.

    It is killed when the thread that called this ends, so that must be the main one. Raises:
    OSError.
    """
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    shared = os.memfd_create("cordata-child", os.MFD_CLOEXEC)
    parked: list[int] = []
    try:
        told = specs.write(replace(spec, parent=os.getpid()))
        if os.write(shared, told) != len(told):
            raise OSError("the shared file is too short")
        page = mmap.mmap(shared, SIZE)
        parked += [_park(fd) for fd in (writing, theirs.fileno(), shared)]
        pid = _start(spec.worker, *parked)
        pidfd = os.pidfd_open(pid)
    except BaseException:
        ours.close()
        os.close(reading)
        raise
    finally:
        theirs.close()
        for fd in (writing, shared, *parked):
            os.close(fd)
    ours.setblocking(False)
    os.set_blocking(reading, False)
    return Spawned(
        pid=pid, start=start_of(pid), pidfd=pidfd, output=reading, channel=ours, page=page
    )


def _start(worker: str, writing: int, channel: int, shared: int) -> int:
    # The last argument is for whoever reads a list of processes.
    argv = [sys.executable, "-P", _main(), f"child@{worker}"]
    return os.posix_spawn(
        argv[0],
        argv,
        _environment(os.environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
            (os.POSIX_SPAWN_DUP2, channel, CHANNEL_FD),
            (os.POSIX_SPAWN_DUP2, shared, PAGE_FD),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE),
    )


def _main() -> str:
    """By path: a package in a private directory is not on the interpreter's own path."""
    return os.fspath(Path(__file__).parent.parent / "child" / "main.py")


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environ.items() if not key.startswith(_WITHHELD)}


def _park(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _PARKED)
