"""Which process: a pid and the time of its start, which no other process has, ever."""

from __future__ import annotations

import os
import time

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def start_of(pid: int | str = "self") -> int:
    """Field 22 of proc_pid_stat(5): when the process started, in clock ticks since boot; 0 when
    there is no such process.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the name, in parentheses, and may hold anything.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def gone(pid: int, start: int) -> bool:
    """Whether that process is surely no more: nobody has its pid, or one that began later.

    /proc does not show processes of another user name space, as a hardened unit has one; they can
    be asked for by a signal all the same.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return start_of(pid) > start


def age_s(start: int) -> float:
    """How long ago a process that began at `start` did so."""
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - start / _TICKS_PER_S, 0.0)
