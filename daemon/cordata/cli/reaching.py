"""Whether the pool's socket can be opened at all: said at once, where waiting changes nothing."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cordata.errors import CordataError, PoolUnavailable
from cordata.opening import pool_socket

if TYPE_CHECKING:
    from cordata.config import Config

#: How there comes to be a pool.
HOW = (
    "start pool.socket, or `cordata server` with an application with commands, without --no-pool; "
    "--state-dir DIR finds one with --state DIR"
)


def permitted(path: Path) -> None:
    """Raises: CordataError when this user may not connect. A socket that is not there may come."""
    try:
        os.stat(path)
        may = os.access(path, os.W_OK, effective_ids=True)
    except PermissionError:
        may = False
    except OSError:
        return
    if not may:
        hint = "be root, the user of the pool, or of its group to make calls"
        raise CordataError(f"{path} is not for this user", hint=hint)


def listening(path: Path) -> None:
    """Raises: as `permitted`, and PoolUnavailable when there is nobody."""
    permitted(path)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
            return
        except FileNotFoundError:
            reason = "there is no such file"
        except ConnectionRefusedError:
            reason = "nobody listens"
        except OSError:
            return  # it is busy: whoever asks, waits
    raise _nobody(path, reason)


def awaited(config: Config, timeout_s: float) -> None:
    """Say that a socket is not there yet and how long it is waited for; it may come, as at a
    restart. Raises: as `permitted`, and PoolUnavailable when not even its server was ever there.
    """
    path = pool_socket(config)
    permitted(path)
    if path.exists():
        return
    state = config.paths.state
    if not (os.path.exists(path.parent) or os.path.exists(state)):
        raise _nobody(path, f"there is no directory {state}")
    text = f"there is no {path} yet, waiting up to {timeout_s:g} s (--timeout)"
    click.echo(f"{text}\nhint: {HOW}", err=True)


def _nobody(path: Path, reason: str) -> PoolUnavailable:
    unavailable = PoolUnavailable(f"nobody answered at {path}: {reason}")
    unavailable.hint = HOW
    return unavailable
