"""A process id and the time of its start: together they identify a process of this host."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path


def start_of(pid: int | str = "self") -> int:
    """The start time of a process, in clock ticks since boot; 0: it has ended.

    A zombie has ended when it is its own last thread: until then its other threads may be within a
    system call, as a commit of SQLite is, and hold its files and their locks.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # its name may be any bytes
    except OSError:
        return 0
    state, *rest = stat.rpartition(")")[2].split()  # proc_pid_stat(5): from the third field on
    threads, start = int(rest[16]), int(rest[18])
    return 0 if state in "ZX" and threads <= 1 else start


def is_gone(pid: int, start: int) -> bool:
    """Whether the process that started at `start` has certainly ended; False when in doubt.

    In the user namespace of a hardened unit, /proc hides the processes of other users. kill(2) with
    signal 0 shows that they exist.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return os.path.exists(f"/proc/{pid}") and start_of(pid) != start


def is_gone_here(holder: str) -> bool:
    """Whether the holder of a lease, `host/pid`, was a process of this host that has ended."""
    host, _, pid = holder.partition(" ")[0].rpartition("/")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it is of another user
    return False


def boot_id() -> str:
    """Identifies this boot of this host and the pid namespace: where a pid is valid."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{namespace()}"


def namespace() -> int:
    """The inode number of this process's pid namespace; 0: not known."""
    with contextlib.suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino
    return 0
