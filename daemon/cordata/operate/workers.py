"""The workers of this host: how many there are, for good; and one out of service for a while."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cordata.errors import CordataError
from cordata.systemd.systemctl import Unit, show_units, systemctl, write_drop_in

#: Replaces the file of this name in /usr/lib, which is the package's. A purge removes it.
DROP_IN = Path("/etc/systemd/system/workers.target.d/workers.conf")
_TARGET = "workers.target"
_INSTANCE = re.compile(r"worker@(\d+)\.service")
_NAME = re.compile(r"(?:workers?@)?(\d+)(?:\.service)?")
#: States in which a worker has a process, or will have one without any command.
_RUNS = ("active", "activating", "reloading", "deactivating")


class WorkersError(CordataError):
    """The number of workers cannot be changed as asked."""

    code = "workers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """What changed."""

    count: int
    started: list[str]
    stopped: list[str]
    #: Whether workers.target runs: if not, the workers start with it.
    running: bool


def drop_in_text(count: int) -> str:
    """The file that makes workers.target start `count` workers."""
    wanted = " ".join(unit_name(number) for number in range(count))
    return f"# Written by `cordata scale workers {count}`.\n[Unit]\nWants={wanted}\n"


def unit_name(number: int) -> str:
    """worker@N.service."""
    return f"worker@{number}.service"


def unit_of(name: str) -> str | None:
    """The unit that worker@2, workers@2, worker@2.service or 2 means; None: no worker."""
    found = _NAME.fullmatch(name)
    return unit_name(int(found[1])) if found else None


def numbers_of(units: Iterable[str]) -> set[int]:
    """The numbers of the workers among these names."""
    return {int(found[1]) for unit in units if (found := _INSTANCE.fullmatch(unit))}


async def scale(count: int) -> Scaled:
    """Make `count` the number of workers, over restarts, reboots and upgrades; start what is
    missing, and stop the others in order: they finish what they have begun.

    Raises: WorkersError, SystemdError.
    """
    target = await _target()
    links = DROP_IN.parent.with_name("workers.target.wants").glob("worker@*.service")
    too_many = {number for number in numbers_of(link.name for link in links) if number >= count}
    if too_many:  # of `systemctl enable worker@N`
        await systemctl("--quiet", "disable", *map(unit_name, sorted(too_many)))
    write_drop_in(DROP_IN, drop_in_text(count))
    await systemctl("daemon-reload")
    wanted = numbers_of((await _target())["Wants"].split())
    if wanted != set(range(count)):
        names = " ".join(map(unit_name, sorted(wanted ^ set(range(count)))))
        raise WorkersError(
            f"{_TARGET} wants others than worker@0 to worker@{count - 1}: {names}",
            hint=f"`systemctl cat {_TARGET}` shows which file says so; correct it, and try again",
        )
    runs = await _running()
    is_active = target["ActiveState"] == "active"
    start = sorted(wanted - runs) if is_active else []
    stop = sorted(number for number in runs if number >= count)
    if start:
        await systemctl("start", *map(unit_name, start))
    if stop:
        await systemctl("stop", *map(unit_name, stop))
    return Scaled(
        count=count,
        started=[unit_name(number) for number in start],
        stopped=[unit_name(number) for number in stop],
        running=is_active,
    )


async def drain(unit: str) -> None:
    """Stop a worker in order: it accepts nothing more, finishes what it has begun, and ends.

    Raises: WorkersError if it does not run, or no other one is ready, SystemdError.
    """
    await _target()
    units = await show_units(("ActiveState",), "worker@*.service")
    active = {one["Id"] for one in units if one["ActiveState"] == "active"}
    if unit not in active:
        raise WorkersError(
            f"{unit} does not run, so there is nothing to drain",
            hint="`systemctl list-units 'worker@*'` shows those that run",
        )
    if active == {unit}:
        raise WorkersError(
            f"no worker but {unit} is ready: the next connection would start worker@0",
            hint="`systemctl stop http.socket cordata.target` stops the service",
        )
    await systemctl("stop", unit)


async def undo_drain(unit: str) -> None:
    """Start a drained worker again, and wait until it is ready.

    Raises: WorkersError if it is none of this host's, SystemdError.
    """
    wanted = (await _target())["Wants"].split()
    if unit not in wanted:
        raise WorkersError(
            f"this host has no {unit}: {_TARGET} wants {' '.join(wanted) or 'none'}",
            hint="`cordata scale workers N` changes the number; `systemctl start` starts one more",
        )
    await systemctl("start", unit)


async def _target() -> Unit:
    [target] = await show_units(("LoadState", "ActiveState", "Wants"), _TARGET)
    if target["LoadState"] != "loaded":
        raise WorkersError(
            f"{_TARGET} is {target['LoadState']}", hint="install the package cordata, or unmask it"
        )
    return target


async def _running() -> set[int]:
    units = await show_units(("ActiveState",), "worker@*.service")
    return numbers_of(unit["Id"] for unit in units if unit["ActiveState"] in _RUNS)
