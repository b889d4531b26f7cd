"""Asks and directs systemd by `systemctl` and drop-ins, as an operator does: no D-Bus library."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from cordata.errors import CordataError

#: Stops all that uses the store: the services are in one slice, and the socket would start one.
STOP_ALL = "systemctl stop http.socket cordata.target cordata.slice"
#: Properties of a unit, as `systemctl show` prints them.
Unit = Mapping[str, str]
_SPANS_S = {"d": 86_400, "h": 3600, "min": 60, "s": 1, "ms": 0.001}


class SystemdError(CordataError):
    """systemd did not do what it was asked to."""

    code = "systemd"


async def run_program(*argv: str) -> tuple[int, str]:
    """Exit code and output (stdout, then stderr) of a program; 127 if there is none.

    Cancelling kills it.
    """
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=null, stdout=pipe, stderr=pipe, env={**os.environ, "LC_ALL": "C.UTF-8"}
        )
    except OSError:
        return 127, ""
    try:
        out, error = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    return process.returncode or 0, (out + error).decode(errors="replace")


async def systemctl(*words: str) -> str:
    """What systemctl prints. Raises: SystemdError if it fails."""
    code, text = await run_program("systemctl", *words)
    if code:
        said = text.strip() or f"it exited with {code}"
        raise SystemdError(f"systemctl {' '.join(words)}: {said}")
    return text


def write_drop_in(path: Path, text: str) -> None:
    """Write a drop-in, whole or not at all; `daemon-reload` reads it. Raises: SystemdError."""
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(exist_ok=True)
        new.write_text(text)
        new.chmod(0o644)
        new.replace(path)
    except OSError as error:
        raise _failure(f"{path} cannot be written", error) from error


def remove_drop_in(path: Path) -> None:
    """Remove a drop-in, and a directory that is left empty. Raises: SystemdError."""
    try:
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()
    except OSError as error:
        raise _failure(f"{path} cannot be removed", error) from error


def _failure(what: str, error: OSError) -> SystemdError:
    hint = "run it as root" if isinstance(error, PermissionError) else None
    return SystemdError(f"{what}: {error.strerror}", hint=hint)


async def show_units(properties: Iterable[str], *names: str) -> list[Unit]:
    """These units and those that match these patterns, once each, by one call of systemctl. A
    pattern matches loaded units that are not active, too (--all).

    A name of a unit that does not exist gives one with LoadState=not-found, a pattern gives none.
    Times are in UTC.
    """
    wanted = f"--property={','.join(('Id', *properties))}"
    _, text = await run_program("env", "TZ=UTC", "systemctl", "show", "--all", wanted, "--", *names)
    units = {unit["Id"]: unit for unit in map(_parse, text.split("\n\n")) if "Id" in unit}
    return [unit for _, unit in sorted(units.items())]


def span_s(text: str) -> float:
    """Seconds of a span as systemd prints it: "1min 30s"; 0 for "infinity"."""
    parts = re.findall(r"([\d.]+)(ms|min|s|h|d)", text)
    return sum(float(number) * _SPANS_S[unit] for number, unit in parts)


def _parse(block: str) -> dict[str, str]:
    """`NAME=value` lines of one unit; Listen= has one line for each address."""
    unit: dict[str, str] = {}
    for line in block.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            unit[name] = f"{unit[name]}\n{value}" if name in unit else value
    return unit
