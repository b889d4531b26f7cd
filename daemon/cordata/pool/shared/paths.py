"""Names of a pool's files in the runtime directory; protocol.py says what they are for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

#: Suffixes of the files in `RUNTIME/pool/NAME`.
SOCKET, STATUS, CONTROL = ".sock", ".status", ".control.sock"


_own_pool = ""


class Place(NamedTuple):
    """The place of one child: worker 2 with `[pool] children = 3` has `2`, `2-1` and `2-2`."""

    worker: str
    #: From 0.
    number: int = 0

    @staticmethod
    def parse(text: str) -> Place:
        """The place that `str` writes as `text`. Raises: ValueError."""
        worker, dash, number = text.partition("-")
        return Place(worker, int(number) if dash else 0)

    def __str__(self) -> str:
        return f"{self.worker}-{self.number}" if self.number else self.worker


class ChildAddress(NamedTuple):
    """Identifies a child, and tells its files."""

    #: That of its pool, whose name it has.
    directory: Path
    place: Place
    generation: int

    @property
    def pool(self) -> str:
        """Name of its pool."""
        return self.directory.name

    @property
    def socket(self) -> Path:
        """Path of its socket."""
        return self.directory / f"{self.place}.{self.generation}{SOCKET}"

    @property
    def status(self) -> Path:
        """Path of its status page."""
        return self.directory / f"{self.place}.{self.generation}{STATUS}"

    @property
    def control(self) -> Path:
        """Path of its worker's control socket."""
        return control_path(self.directory, self.place.worker)


def parse(directory: Path, name: str) -> ChildAddress | None:
    """The child whose socket or status page has this file name; None: it is another file."""
    stem, _, suffix = name.rpartition(".")
    place, _, generation = stem.rpartition(".")
    if f".{suffix}" not in (SOCKET, STATUS) or not place or place.startswith("."):
        return None
    if not (generation.isascii() and generation.isdigit()):
        return None
    try:
        return ChildAddress(directory, Place.parse(place), int(generation))
    except ValueError:
        return None


def control_path(directory: Path, worker: str) -> Path:
    """Path of a worker's control socket."""
    return directory / f"{worker}{CONTROL}"


def own_pool() -> str:
    """The directory of the pool that this process is a child of; "": it is no child."""
    return _own_pool


def set_own_pool(directory: str) -> None:
    """Set the result of `own_pool`; a child calls it when it starts."""
    global _own_pool
    _own_pool = directory
