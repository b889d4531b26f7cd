"""The pool's sockets: checks whether a worker listens, and whether this user may connect."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import click

from cordata.config import Config
from cordata.context_factory import pool_directory
from cordata.errors import CordataError, PoolUnavailable

#: The hint when there is no pool.
HOW = (
    "start workers, or `cordata server`, with an application that has commands; "
    "for a server with --state DIR add --state-dir DIR"
)
#: A server that restarts listens again within this time.
_RESTART_S = 5.0
_CHECK_EVERY_S = 0.1


def check_permission(config: Config) -> None:
    """Raises: CordataError if this user may not connect, or if the runtime directory belongs to a
    user who is neither root, this user, nor the owner of the state directory: the sockets could be
    an attacker's. A missing directory is no error: it may be created later.
    """
    path = pool_directory(config)
    _check_owner(path.parent, config.paths.state)
    try:
        os.stat(path)
        may = os.access(path, os.R_OK | os.X_OK, effective_ids=True)
        may = may and all(os.access(one, os.W_OK, effective_ids=True) for one in _sockets(path))
    except PermissionError:
        may = False
    except OSError:
        return
    if not may:
        hint = "run the command as root, as the user of the workers, or as a member of their group"
        raise CordataError(f"{path}: permission denied", hint=hint)


def _check_owner(runtime: Path, state: Path) -> None:
    try:
        owner, trusted = runtime.stat().st_uid, {0, os.geteuid()}
        if owner not in trusted and state.exists():
            trusted.add(state.stat().st_uid)
    except OSError:
        return  # missing, or not readable for this user
    if owner not in trusted:
        hint = "[paths] runtime must be a directory of the workers' user: choose another"
        raise CordataError(f"{runtime} belongs to user {owner}", hint=hint)


def check_listening(config: Config) -> None:
    """Raises: as `check_permission`; PoolUnavailable if no worker listens."""
    check_permission(config)
    path = pool_directory(config)
    if reason := _absence(path):
        raise _unavailable(path, reason)


def wait_until_listening(config: Config, timeout_s: float) -> None:
    """Return when a worker listens. Waits a few seconds, and says so, for workers that restart.

    Raises: as `check_permission`; PoolUnavailable if none listens in time, at once if neither the
    runtime nor the state directory exists.
    """
    check_permission(config)
    path, state = pool_directory(config), config.paths.state
    reason = _absence(path)
    if not reason:
        return
    if not (os.path.exists(path.parent) or os.path.exists(state)):
        raise _unavailable(path, f"there is no directory {state}")
    patience_s = min(timeout_s, _RESTART_S)
    what = f"no worker listens in {path}" if path.exists() else f"there is no {path}"
    click.echo(f"{what} yet, waiting up to {patience_s:g} s\nhint: {HOW}", err=True)
    deadline = time.monotonic() + patience_s
    while reason := _absence(path):
        if time.monotonic() >= deadline:
            raise PoolUnavailable(f"no worker answered in {path}: {reason}")
        time.sleep(_CHECK_EVERY_S)


def _absence(path: Path) -> str:
    """The reason why no worker can be reached; "" if one listens."""
    reason = "there is no socket of a worker" if path.exists() else "there is no such directory"
    for name in _sockets(path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.setblocking(False)
            try:
                probe.connect(name)
            except (FileNotFoundError, ConnectionRefusedError):
                reason = "no process listens"
            except OSError:
                return ""  # the worker is busy: the call will wait
            else:
                return ""
    return reason


def _sockets(path: Path) -> Iterator[str]:
    """The control sockets of the workers of all pools."""
    return (os.fspath(one) for one in sorted(path.glob("*/*.control.sock")))


def _unavailable(path: Path, reason: str) -> PoolUnavailable:
    unavailable = PoolUnavailable(f"no worker answered in {path}: {reason}")
    unavailable.hint = HOW
    return unavailable
