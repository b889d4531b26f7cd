"""Commands that start or stop units of this host: one at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cordata.systemd import is_booted
from cordata.systemd.systemctl import SystemdError

#: Only root may open it, so that no other user can hold a restart up. A purge removes it.
_LOCK = Path("/run/cordata-units.lock")


@contextmanager
def exclusive() -> Iterator[None]:
    """Inside the block no other rolling restart, scale or drain runs on this host: a restart would
    start again what another one stops, that of an upgrade and an operator's would report each other
    as failures, and two drains could leave no worker. It says so if another one has to end first.

    Raises: SystemdError without systemd, and for other users than root.
    """
    if not is_booted():
        raise SystemdError(
            "systemd does not run here, so there are no units",
            hint="a `cordata server` is restarted as a whole; --workers says how many it has",
        )
    try:
        lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SystemdError(f"{_LOCK}: {error.strerror}", hint="run it as root") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = "waiting for another command that starts or stops units of this host"
            click.echo(text, err=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
