"""The pool's socket: whether somebody listens there, and whether this user may connect to it."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cordata.errors import CordataError, PoolUnavailable
from cordata.factory import pool_socket

if TYPE_CHECKING:
    from cordata.config import Config

#: How there comes to be a pool.
HOW = (
    "start pool.socket, or `cordata server` with an application with commands, without --no-pool; "
    "--state-dir DIR finds one with --state DIR"
)
#: A server that restarts listens again within this time.
_RESTART_S = 5.0
_LOOK_EVERY_S = 0.1


def check_permission(config: Config) -> None:
    """Raises: CordataError when this user may not connect, or when the socket may be that of an
    attacker, since the runtime directory is not of a user whom the state directory or this one
    belongs to. A socket that is not there may come.
    """
    path = pool_socket(config)
    _check_owner(path.parent, config.paths.state)
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


def _check_owner(runtime: Path, state: Path) -> None:
    try:
        owner, trusted = runtime.stat().st_uid, {0, os.geteuid()}
        if owner not in trusted and state.exists():
            trusted.add(state.stat().st_uid)
    except OSError:
        return  # it is not there, or not for this user
    if owner not in trusted:
        hint = "[paths] runtime must be a directory of the user who runs the pool: choose another"
        raise CordataError(f"{runtime} belongs to user {owner}", hint=hint)


def check_listening(config: Config) -> None:
    """Raises: as `check_permission`, and PoolUnavailable when there is nobody."""
    check_permission(config)
    path = pool_socket(config)
    if reason := _absence(path):
        raise _nobody(path, reason)


def wait_until_listening(config: Config, timeout_s: float) -> None:
    """Return when somebody listens. The pool may be restarting: wait a moment for it, and say so.

    Raises: as `check_permission`; PoolUnavailable when nobody comes, at once when not even the
    directories are there.
    """
    check_permission(config)
    path, state = pool_socket(config), config.paths.state
    reason = _absence(path)
    if not reason:
        return
    if not (os.path.exists(path.parent) or os.path.exists(state)):
        raise _nobody(path, f"there is no directory {state}")
    patience_s = min(timeout_s, _RESTART_S)
    what = f"nobody listens at {path}" if path.exists() else f"there is no {path}"
    click.echo(f"{what} yet, waiting up to {patience_s:g} s\nhint: {HOW}", err=True)
    deadline = time.monotonic() + patience_s
    while reason := _absence(path):
        if time.monotonic() >= deadline:
            raise PoolUnavailable(f"nobody answered at {path}: {reason}")
        time.sleep(_LOOK_EVERY_S)


def _absence(path: Path) -> str:
    """Why nobody can be connected to; "": somebody listens."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except FileNotFoundError:
            return "there is no such file"
        except ConnectionRefusedError:
            return "nobody listens"
        except OSError:
            pass  # it is busy: whoever asks, waits
    return ""


def _nobody(path: Path, reason: str) -> PoolUnavailable:
    unavailable = PoolUnavailable(f"nobody answered at {path}: {reason}")
    unavailable.hint = HOW
    return unavailable
