"""Which process: a pid and the time of its start, which no other process has, ever."""

from __future__ import annotations


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
