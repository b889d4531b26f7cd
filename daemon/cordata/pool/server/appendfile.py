"""What the manager does to its state directory: one manager at a time, files that only grow."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from cordata.errors import ConfigError


class AppendFile:
    """A file that only grows, and by whole writes."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.fd = os.open(path, flags | (os.O_TRUNC if fresh else 0), 0o600)
        self.size_bytes = os.fstat(self.fd).st_size

    def write(self, data: bytes) -> None:
        """All of it. Raises: OSError, and then none of it."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.size_bytes)
            raise
        self.size_bytes += len(data)

    def cut(self, size_bytes: int) -> None:
        """Forget what is behind. Raises: OSError."""
        os.ftruncate(self.fd, size_bytes)
        self.size_bytes = size_bytes

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)


def lock(directory: Path) -> int:
    """Make the directory and take it; gives the descriptor that has it.

    Raises: ConfigError when another manager has it, OSError.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    taken = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(taken)
        hint = "one pool for each state directory"
        raise ConfigError(f"another pool uses {directory}", hint=hint) from None
    return taken
