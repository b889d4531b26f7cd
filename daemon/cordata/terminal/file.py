"""A new file that a command writes: only its owner can read it, and no half of it stays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from cordata.errors import CordataError


@contextmanager
def new_file(path: Path, *, hint: str) -> Iterator[Callable[[bytes], None]]:
    """Create the file, and give the block a function that writes to it. If the block fails, the
    file is removed.

    Enter it before the store is opened: a command of root becomes another user there, who may not
    create the file, nor remove it; then a note says that it is not complete. Raises: CordataError
    with `hint` if the file exists, or cannot be created or written.
    """

    def failure(error: OSError) -> CordataError:
        return CordataError(f"{path}: {error.strerror}", hint=hint)

    try:
        # Without a buffer, whose rest would be written when it is closed after a failure.
        file = open(path, "xb", buffering=0, opener=partial(os.open, mode=0o600))
    except OSError as error:
        raise failure(error) from error

    def write(data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[file.write(left) :]
        except OSError as error:
            raise failure(error) from error

    with file:
        try:
            yield write
        except BaseException:
            try:
                path.unlink()
            except OSError:  # the user has changed
                click.echo(f"note: {path} is not complete: delete it", err=True)
            raise
