"""A process id and the time of its start: together they identify a process of this host."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def start_of(pid: int | str = "self") -> int:
    """When a process started, in ticks since the boot; 0: there is none, or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # its name may be any bytes
    except OSError:
        return 0
    state, *rest = stat.rpartition(")")[2].split()  # proc_pid_stat(5): from the third field on
    return 0 if state in "ZX" else int(rest[18])


def is_gone(pid: int, start: int) -> bool:
    """Whether the process that began at `start` has certainly ended; False when in doubt.

    A hardened unit has a user namespace of its own, and its /proc hides the processes of others:
    that they exist is known by a signal all the same.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return os.path.exists(f"/proc/{pid}") and start_of(pid) != start


def boot_id() -> str:
    """Names this boot of this host, and the namespace in which its process ids are valid."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{namespace()}"


def namespace() -> int:
    """The namespace of process ids that this process lives in."""
    with contextlib.suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino
    return 0
