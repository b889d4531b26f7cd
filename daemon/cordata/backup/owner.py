"""Root acts as the owner of a directory, so that it leaves no file of root's in it and follows no
link there that only root could follow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cordata.command_context import home_of


@contextmanager
def acting_as_owner(directory: Path) -> Iterator[None]:
    """Inside the block root has the owner's effective user and group, and HOME; may be nested.

    A directory that is missing counts as its nearest parent. Anyone else stays who they are.
    """
    if os.getuid() != 0:
        yield
        return
    while not directory.exists():
        directory = directory.parent
    status = directory.stat()
    before = os.geteuid(), os.getegid(), os.getgroups(), os.environ.get("HOME", "")
    _become(status.st_uid, status.st_gid, [status.st_gid], home_of(status.st_uid))
    try:
        yield
    finally:
        _become(*before)


def _become(uid: int, gid: int, groups: list[int], home: str) -> None:
    os.seteuid(0)
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    os.environ["HOME"] = home
