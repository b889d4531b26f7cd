"""What a test or a bench starts in the background dies with it, also when that is killed -9.

    process = watched(subprocess.Popen(...))

One small process for each starter reads from a pipe that only the starter holds open. At its end it
kills what still runs, with its descendants and its session. Not PR_SET_PDEATHSIG: that fires when
the *thread* ends that started the process, no grandchild inherits it, and it is lost with a change
of user.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Protocol, TypeVar


class _Process(Protocol):
    """A process of `subprocess` or of `asyncio`."""

    @property
    def pid(self) -> int: ...


_P = TypeVar("_P", bound=_Process)
#: Fields of proc(5) behind the name, which may have spaces: state, parent, group, session, ...
_STATE, _SESSION, _BEGUN = 0, 3, 19
#: For the kernel to take apart what was killed; then the files go all the same.
_GONE_S = 5.0


def watched(process: _P, *, then: str = "") -> _P:
    """The process, which is killed when this one ends. `then`: shell text to run after that."""
    _pipe.write({"pid": process.pid, "begun": _begun(process.pid), "then": then})
    return process


def swept(directory: Path) -> Path:
    """The directory, which is removed when this process ends, however it does."""
    script = f"rm -rf {shlex.quote(str(directory))}"
    _pipe.write({"pid": 0, "begun": "", "then": script})
    return directory


def terminated_in_order() -> None:
    """A SIGTERM to this process unwinds it, so that what it started ends before it."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)


class _Pipe:
    """To the reaper of this process, which the first process to watch brings about."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._reaper: subprocess.Popen[str] | None = None

    def write(self, line: dict[str, object]) -> None:
        with self._lock:
            if self._reaper is None or self._owner != os.getpid():  # a fork has its parent's
                self._owner = os.getpid()
                self._reaper = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__],
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,  # neither Ctrl-C nor the end of a group is for it
                )
            assert self._reaper.stdin
            self._reaper.stdin.write(json.dumps(line) + "\n")
            self._reaper.stdin.flush()

    def close(self) -> None:
        if self._reaper and self._owner == os.getpid():
            self._reaper.communicate()


_pipe = _Pipe()
atexit.register(_pipe.close)


def _stat(pid: int) -> list[str]:
    """Fields behind the name; none when there is no such process."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # its name may be any bytes
        return stat.rpartition(")")[2].split()
    return []


def _begun(pid: int) -> str:
    """When it began, which tells it from a later one of the same number; "" when it is gone."""
    fields = _stat(pid)
    return fields[_BEGUN] if fields else ""


def _end(pid: int, killed: list[int]) -> None:
    """Kill a process and its descendants; stopped first, none of them makes further ones."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        for thread in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for child in thread.read_text().split():
                    _end(int(child), killed)
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)


def _members(session: int) -> list[int]:
    """Processes of a session."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if (stat := _stat(pid)) and stat[_SESSION] == str(session)]


def _is_alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[_STATE] not in "ZX"


def main() -> None:
    """Wait for the end of the pipe; then nobody is left who could do any of this."""
    watches = [json.loads(line) for line in sys.stdin]
    killed: list[int] = []
    for watch in watches:
        pid, begun = watch["pid"], watch["begun"]
        if begun and _begun(pid) == begun:  # else the number may be another's, and so the session
            for member in [pid, *_members(pid)]:
                _end(member, killed)
    end = time.monotonic() + _GONE_S
    while any(map(_is_alive, killed)) and time.monotonic() < end:
        time.sleep(0.02)
    for script in dict.fromkeys(watch["then"] for watch in watches):
        subprocess.run(["sh", "-c", script], check=False)


if __name__ == "__main__":
    main()
