"""What an operator types where systemd runs the service, by the units of the package, and where it
does not: in a container, or with `cordata server` in a terminal.
"""

from __future__ import annotations

from pathlib import Path

from cordata.config import DEFAULT_FILE
from cordata.systemd.notify import is_booted
from cordata.systemd.systemctl import STOP_ALL


def has_units(path: Path | None) -> bool:
    """Whether the units of this host use this configuration file."""
    return path == DEFAULT_FILE and is_booted()


def log_hint(match: str, *, units: bool) -> str:
    """Where to look: `match` is what `journalctl` takes, such as `-u primary`."""
    return f"`journalctl {match}`" if units else "see the log"


def start_hint(*, units: bool) -> str:
    """How to start the service."""
    return "systemctl start http.socket cordata.target" if units else "start `cordata server`"


def stop_hint(*, units: bool) -> str:
    """How to stop all that uses the store."""
    return STOP_ALL if units else "end `cordata server` and its jobs"
