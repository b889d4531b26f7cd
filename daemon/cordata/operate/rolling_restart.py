"""A rolling restart: primary and workers one after the other, each ready before the next stops.

The primary is first, as at every start: it applies the migrations that new workers wait for, and
the old ones work on the new tables, since migrations only add. The first failure ends the restart;
the processes that are left run what they ran before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cordata import clock
from cordata.app_loader import load_runtime
from cordata.config.reader import DEFAULT_FILE
from cordata.errors import CordataError
from cordata.network import is_restricted, restrict
from cordata.supervisor.spawn import command
from cordata.systemd.systemctl import Unit, run_program, show_units

_PROPERTIES = (
    *("LoadState", "ActiveState", "Result", "MainPID"),
    *("InvocationID", "ExecMainStatus"),
)
_PRIMARY = "primary.service"
#: Lines of the log of a unit that failed.
_LOG_LINES = 15
#: The number of a migration that removes something ends like this.
_MAJOR = 1000
#: Longest time for a check before the restart.
_CHECK_S = 60.0


class RestartError(CordataError):
    """A rolling restart did not begin, or ended before all were restarted."""

    code = "restart"

    def __init__(self, message: str, *, hint: str, log: str = "") -> None:
        super().__init__(message, hint=hint)
        #: The last lines of the unit's log.
        self.log = log


class RemovalPending(RestartError):
    """A pending migration removes something, so old and new code cannot run side by side."""

    code = "removal_pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """One unit that is ready again."""

    unit: str
    former_pid: int
    pid: int
    seconds: float


async def check_before(config: str | None) -> None:
    """Whether new processes could run. Raises: RestartError if they could not, RemovalPending if a
    pending migration removes what the running ones use.

    Other processes check, as the user of the service: this one has to stay root.
    """
    options = _options(config)
    code, said = await _cordata("config", "check", *options)
    if code:
        raise RestartError(f"nothing was restarted: {said.strip()}", hint="correct that first")
    code, said = await _cordata("migrate", "--check", "--json", *options)
    try:
        # Warnings may follow.
        pending = json.JSONDecoder().raw_decode(said)[0]["pending"]
    except ValueError:
        text = f"nothing was restarted: the migrations could not be checked: {said.strip()}"
        raise RestartError(text, hint="`cordata doctor` may say more") from None
    if removing := find_removals(pending):
        raise RemovalPending(
            f"nothing was restarted: {', '.join(removing)} removes what running workers may use",
            hint="`systemctl restart cordata.target` restarts all at once, and connections wait."
            " With several hosts, stop the service on the others first",
        )


def _options(config: str | None) -> list[str]:
    # Absolute, since the checks run in another directory.
    return [] if config is None else ["--config", str(Path(config).absolute())]


async def refresh_network(config: str | None) -> None:
    """Write the drop-ins of `cordata network restrict` again, if there are any, so that new
    processes may connect to what the settings name now. Raises: RestartError.
    """
    if not is_restricted():
        return
    try:
        await restrict(load_runtime(config or DEFAULT_FILE))
    except CordataError as error:
        text = f"nothing was restarted: {error}"
        raise RestartError(text, hint=error.hint or "`cordata network restrict`") from error


async def _cordata(*arguments: str) -> tuple[int, str]:
    # From /, as the services: another directory may have a cordata.toml.
    argv = ("env", "--chdir=/", *command(*arguments))
    try:
        async with asyncio.timeout(_CHECK_S):
            return await run_program(*argv)
    except TimeoutError:
        return 1, f"`cordata {' '.join(arguments)}` took longer than {_CHECK_S:g} s"


def find_removals(pending: Sequence[Mapping[str, object]]) -> list[str]:
    """The pending migrations that remove something: those that start a thousand."""
    return [
        f"{one['component']} {one['number']}_{one['name']}"
        for one in pending
        if isinstance(one["number"], int) and one["number"] >= _MAJOR and not one["number"] % _MAJOR
    ]


async def restart_one_by_one(*, timeout_s: float, on_restart: Callable[[Restarted], None]) -> None:
    """Restart the primary, then all workers that run or failed; `on_restart` is told each that is
    ready again. `timeout_s` is for each. A masked unit is left as it is: systemd refuses to start
    it.

    Raises: RestartError at the first unit that is not ready again. When cancelled, the unit that is
    being restarted goes on with that.
    """
    units = await _find_units()
    done: list[Restarted] = []
    started: dict[str, str] = {}
    for at, unit in enumerate(units):
        name = unit["Id"]
        begun = clock.monotonic()
        said = await _restart(name, timeout_s)
        now = {found["Id"]: found for found in await _show()}
        problem = find_problem(unit, now.get(name, {}), said)
        problems = {name: problem} if problem else {}
        # One that was ready, and ended a moment later, is as bad as one that never was.
        for other, invocation in started.items():
            if now.get(other, {}).get("InvocationID") != invocation:
                problems[other] = "was ready, and ended soon after that"
        if problems:
            raise await _failure(problems, done, [one["Id"] for one in units[at + 1 :]])
        started[name] = now[name]["InvocationID"]
        done.append(
            Restarted(
                unit=name,
                former_pid=int(unit["MainPID"]),
                pid=int(now[name]["MainPID"]),
                seconds=clock.monotonic() - begun,
            )
        )
        on_restart(done[-1])


async def _show() -> list[Unit]:
    return await show_units(_PROPERTIES, "worker@*.service", _PRIMARY)


async def _find_units() -> list[Unit]:
    units = [
        unit
        for unit in await _show()
        if unit["ActiveState"] != "inactive" and unit["LoadState"] != "masked"
    ]
    if not units:
        raise RestartError(
            "no worker and no primary runs on this host",
            hint="`systemctl start http.socket cordata.target` starts them",
        )
    return sorted(units, key=lambda unit: (unit["Id"] != _PRIMARY, len(unit["Id"]), unit["Id"]))


async def _restart(name: str, timeout_s: float) -> str:
    """Returns when the unit is ready; else what went wrong."""
    try:
        async with asyncio.timeout(timeout_s):
            code, said = await run_program("systemctl", "restart", name)
    except TimeoutError:
        return f"was not ready after {timeout_s:g} s"
    return said.strip().partition("\n")[0] or f"systemctl exited with {code}" if code else ""


def find_problem(before: Unit, after: Unit, said: str = "") -> str:
    """Why a unit is not restarted; "" if it is. `said`: what the restart itself reported."""
    state = after.get("ActiveState", "unknown")
    pid = after.get("MainPID", "0")
    if state != "active" or pid == "0":
        status = after.get("ExecMainStatus", "0")
        found = f"is {state} ({after.get('Result', '?')}, exit status {status})"
        return f"{said}; it {found}" if said else found
    if pid == before.get("MainPID"):
        return said or "has the same process as before"
    return said


async def _failure(
    problems: Mapping[str, str], done: Sequence[Restarted], left: Sequence[str]
) -> RestartError:
    name = next(iter(problems))
    _, log = await run_program(
        *("journalctl", "--no-pager", "--quiet", "--output=short", f"--lines={_LOG_LINES}"),
        *("-u", name),
    )
    new = [one.unit for one in done if one.unit not in problems]
    parts = [f"{one}: {problem}" for one, problem in problems.items()]
    parts.append(f"restarted: {' '.join(new) or 'none'}; not restarted: {' '.join(left) or 'none'}")
    again = "correct the cause, then run `cordata rolling-restart` again"
    return RestartError(
        "\n".join(parts),
        hint=f"those not restarted still serve as before. {again}" if left else again,
        log=log.rstrip(),
    )
