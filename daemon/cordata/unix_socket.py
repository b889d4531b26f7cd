"""Unix sockets at paths of any length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address of `path`, valid in the block: a socket's address has 107 bytes (unix(7)), and a
    path may be longer. Raises: OSError.
    """
    text = os.fspath(path)
    if len(os.fsencode(text)) < 108:
        yield text
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
