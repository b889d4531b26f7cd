"""Space on a disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The file system of a directory."""

    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int
    #: 0 where a file system does not count them.
    total_inodes: int


def space_of(path: Path) -> Space:
    """The space of the file system that a directory is on, or is to be made on."""
    path = next(one for one in (path, *path.parents) if one.exists())
    found = os.statvfs(path)
    return Space(
        path=str(path),
        free_bytes=found.f_bavail * found.f_frsize,
        total_bytes=found.f_blocks * found.f_frsize,
        free_inodes=found.f_favail,
        total_inodes=found.f_files,
    )
