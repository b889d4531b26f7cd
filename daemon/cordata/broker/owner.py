"""Who is alive: each process holds a locked file that also says which handlers it is running.

    <runtime>/owner/<name>@<host>.<place>.<pid>.<random><start>
                                             flock held  = its process lives
                                             lock free   = it died
                                             file gone   = as long as its process is there, it lives

The name alone, `worker-0@host`, would do for people, and `plain_name` gives it to them. It cannot
be who holds something: at a restart two processes may have it at once, the old one still busy with
its last messages, or stuck, while the new one begins; and each would acknowledge, renew and give
back what the other one holds, and a death could not be told from a life. So each process is an
owner of its own, and what the name was for is kept all the same: a worker that is started again
takes over what its predecessor left at once, as every other one on the host does (see reclaim.py).

The place is this runtime directory on this host: of owners of another place, on another host say,
nothing can be known here, and what they hold is theirs until their claims expire.

The kernel frees the lock at the moment of death, kill -9 included, so what a dead process held can
be taken over at once, without waiting for its claims to expire. The file's slots hold a mark per
running handler: a message whose handler was running has used up an attempt, one that merely lay in
the dead process's hands has not. No sync is needed: the page cache outlives the process, and after
a reboot the file is gone.

A file that is gone proves no death: somebody may have deleted it. So the id also says when its
process started, which tells that process from another one that has its number now.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Self

MARK_BYTES = 8
_EMPTY = bytes(MARK_BYTES)
_START_CHARS = 8
#: Owners of this process that have left, which lives on without them.
_left: set[str] = set()


def mark_of(group: str, message_id: object) -> bytes:
    """The mark of one message in one group."""
    return blake2b(f"{group}/{message_id}".encode(), digest_size=MARK_BYTES).digest()


class Owner:
    """This process, as others see it. Its `id` is unique to the process."""

    def __init__(self, path: Path, fd: int) -> None:
        self.id = path.name
        self._path = path
        self._fd = fd
        self._free: list[int] = []
        self._slots = 0

    @classmethod
    def register(cls, runtime_dir: Path, *, name: str) -> Self:
        """Create and lock the file of this process; `name` is for people ("worker-0")."""
        place = place_of(runtime_dir)
        unique = os.urandom(4).hex() + _start_of(os.getpid())
        own = f"{name}@{socket.gethostname()}.{place}.{os.getpid()}.{unique}"
        path = _folder(runtime_dir) / own
        return cls(path, _make(path, b""))

    def restore(self) -> bool:
        """Put the file back if somebody deleted it (the runtime directory was cleaned, say).

        Returns whether it was gone: then others' files may be gone, too, though they live.
        """
        if os.fstat(self._fd).st_nlink:
            return False
        fd = _make(self._path, os.pread(self._fd, self._slots * MARK_BYTES, 0))
        os.close(self._fd)
        self._fd = fd
        return True

    def begin(self, mark: bytes) -> int:
        """Write down that a handler begins. Returns the slot for `end`."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._slots
            self._slots += 1
        os.pwrite(self._fd, mark, slot * MARK_BYTES)
        return slot

    def end(self, slot: int) -> None:
        """The handler of a slot has ended."""
        os.pwrite(self._fd, _EMPTY, slot * MARK_BYTES)
        self._free.append(slot)

    def close(self) -> None:
        """Leave: what this process still holds is free for others from now on.

        One in which handlers still run does not leave, it dies: the file stays, without its lock,
        and tells which attempts are used up.
        """
        if len(self._free) == self._slots:
            _left.add(self.id)
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
        os.close(self._fd)


class Owners:
    """All processes of this host that share a runtime directory; others never count as dead."""

    def __init__(self, runtime_dir: Path) -> None:
        self._folder = _folder(runtime_dir)
        self._place = place_of(runtime_dir)

    def ids(self) -> list[str]:
        """Every owner with a file, dead ones included."""
        try:
            return sorted(name for name in os.listdir(self._folder) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def is_alive(self, owner_id: str) -> bool:
        """Whether the owner's process lives, as far as can be known here: if in doubt it does."""
        if self._place not in owner_id.rsplit(".", 3)[1:-2]:
            return True
        try:
            fd = os.open(self._folder / owner_id, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            start = _start_of(pid_of(owner_id))
            return start != "" and owner_id.endswith(start) and owner_id not in _left
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def dead(self, owner_ids: Iterable[str]) -> list[str]:
        """Those of them whose process is gone."""
        return [owner_id for owner_id in owner_ids if not self.is_alive(owner_id)]

    def running(self, owner_id: str) -> frozenset[bytes]:
        """Marks of the handlers that ran when the owner died; empty when its file is gone."""
        try:
            content = (self._folder / owner_id).read_bytes()
        except FileNotFoundError:
            return frozenset()
        marks = (content[i : i + MARK_BYTES] for i in range(0, len(content), MARK_BYTES))
        return frozenset(mark for mark in marks if mark != _EMPTY)

    def forget(self, owner_id: str) -> None:
        """Remove the file of a dead owner, after what it held was taken over."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._folder / owner_id)


def place_of(runtime_dir: Path) -> str:
    """What tells a runtime directory of this host from every other one; a reboot keeps it."""
    machine = ""
    with contextlib.suppress(OSError):  # a container may have none; its host name is its own
        machine = Path("/etc/machine-id").read_text()
    parts = f"{machine}/{socket.gethostname()}/{os.path.realpath(runtime_dir)}"
    return blake2b(parts.encode(), digest_size=4).hexdigest()


def plain_name(owner_id: str) -> str:
    """An owner as people know it, such as worker-0@host; what is no owner id stays as it is."""
    name, *rest = owner_id.rsplit(".", 3)
    return name if len(rest) == 3 and "@" in name and rest[1].isdigit() else owner_id


def pid_of(owner_id: str) -> int:
    """The process id within an owner id; 0 when it has none."""
    parts = owner_id.rsplit(".", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


def _start_of(pid: int) -> str:
    """When a process started, as 8 hex digits; "": there is none, or it has ended (a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, *rest = stat.rpartition(")")[2].split()  # proc_pid_stat(5): from the third field on
    return "" if state in "ZX" else f"{int(rest[18]):0{_START_CHARS}x}"[-_START_CHARS:]


def _make(path: Path, content: bytes) -> int:
    """A locked file, and its descriptor."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Locked under a name that nobody looks at: it is never seen unlocked while we live.
    hidden = path.with_name(f".{path.name}")
    fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.pwrite(fd, content, 0)
    hidden.rename(path)
    return fd


def _folder(runtime_dir: Path) -> Path:
    return runtime_dir / "owner"
