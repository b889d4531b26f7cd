"""A finding is one line of `cordata doctor`. `run_checks` runs checks at once, each bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

from cordata import log
from cordata.errors import CordataError

T = TypeVar("T")
State = Literal["ok", "warning", "failed", "skipped"]
#: Longest time for one check.
LIMIT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line: what was checked, what was found, and what to type if that is not right."""

    check: str
    state: State
    text: str
    #: A command or a setting; "" if there is nothing to do.
    fix: str = ""


Check = Callable[[], Awaitable[Iterable[Finding]]]


def ok(check: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, state="ok", text=text)


def warning(check: str, text: str, fix: str) -> Finding:
    """It works, but not well, or not for long."""
    return Finding(check=check, state="warning", text=text, fix=fix)


def failed(check: str, text: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(check=check, state="failed", text=text, fix=fix)


def skipped(check: str, reason: str, fix: str = "") -> Finding:
    """It was not checked."""
    return Finding(check=check, state="skipped", text=reason, fix=fix)


def of_error(check: str, error: CordataError, *, fix: str) -> list[Finding]:
    """What an error of cordata says, one finding for each of its lines, with its hint or `fix`."""
    return [failed(check, line, error.hint or fix) for line in str(error).splitlines()]


async def run_checks(
    checks: Iterable[tuple[str, Check]], *, limit_s: float = LIMIT_S
) -> list[Finding]:
    """All findings, in the order of the checks, which run at once.

    A check that takes longer than `limit_s`, or raises, is a failed one; the others are not
    concerned.
    """
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_bounded(name, check, limit_s)) for name, check in checks]
    return [finding for task in running for finding in task.result()]


async def _bounded(name: str, check: Check, limit_s: float) -> list[Finding]:
    try:
        async with asyncio.timeout(limit_s):
            return list(await check())
    except TimeoutError:
        fix = "what it asks does not answer; if the host is only busy, run it again"
        return [failed(name, f"no result within {limit_s:g} s", fix)]
    except CordataError as error:
        return of_error(name, error, fix="the log of the primary may say more")
    except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
        # Without its message, which may quote anything.
        where = log.frames(error.__traceback__)
        text = f"the check itself failed: {type(error).__name__} (at {where})"
        return [failed(name, text, "this looks like a bug: `cordata report-bug`")]


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function that may block, in a daemon thread: a disk or a name server that does not
    answer holds up neither the other checks nor the exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def call() -> None:
        result: T | None = None
        raised: BaseException | None = None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - the caller gets it
            raised = error
        with suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=call, name="check", daemon=True).start()
    return await future


def worst(findings: Sequence[Finding]) -> State:
    """The state of the whole: failed, else warning, else ok."""
    states = {one.state for one in findings}
    return "failed" if "failed" in states else "warning" if "warning" in states else "ok"
