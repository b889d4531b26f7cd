"""The files of a pool in the runtime directory; protocol.py says what they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

#: Suffixes of what lies in `RUNTIME/pool/NAME`.
SOCKET, STATUS, CONTROL = ".sock", ".status", ".control.sock"


class ChildName(NamedTuple):
    """Which child: the place that its worker gives it, and its generation."""

    worker: str
    generation: int

    @property
    def socket(self) -> str:
        """Name of its socket."""
        return f"{self.worker}.{self.generation}{SOCKET}"

    @property
    def status(self) -> str:
        """Name of its status page."""
        return f"{self.worker}.{self.generation}{STATUS}"


class ChildAddress(NamedTuple):
    """A child: where it listens, and which it is."""

    directory: Path
    pool: str
    child: ChildName

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.directory / self.child.socket

    @property
    def status(self) -> Path:
        """Its status page."""
        return self.directory / self.child.status


def parse(name: str) -> ChildName | None:
    """The child whose socket or status page has this name; None: it is another file."""
    stem, _, suffix = name.rpartition(".")
    worker, _, generation = stem.rpartition(".")
    if f".{suffix}" not in (SOCKET, STATUS) or not worker or worker.startswith("."):
        return None
    if not (generation.isascii() and generation.isdigit()):
        return None
    return ChildName(worker, int(generation))


def control_name(worker: str) -> str:
    """Name of the worker's own socket; of a child's place (`2-1`) that of its worker."""
    return f"{worker.partition('-')[0]}{CONTROL}"


def pool_directory(runtime: Path, pool: str) -> Path:
    """Where the files of one pool are."""
    return runtime / "pool" / pool


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address of the socket at `path` for bind and connect, which take 107 bytes (unix(7))."""
    text = os.fspath(path)
    if len(os.fsencode(text)) < 108:
        yield text
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
