"""The event loop of each role and coroutine test: uvloop, closed without hanging."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from cordata.unhandled import watch_loop


def run_on_uvloop(role: Callable[[], Awaitable[int]]) -> int:
    """Run until the role ends. Returns its exit code."""

    async def main() -> int:
        watch_loop(asyncio.get_running_loop())
        return await role()

    debug = bool(os.environ.get("PYTHONASYNCIODEBUG"))
    with uvloop_runner(debug=debug or None) as runner:
        return runner.run(main())


@contextmanager
def uvloop_runner(*, debug: bool | None = None) -> Iterator[asyncio.Runner]:
    """A runner on a new uvloop, closed at the end even if transports are still open.

    uvloop warns about an open transport, then closes it. Where warnings are errors, the warning
    prevents the closing, and uvloop waits forever. So warnings are collected, and issued after the
    loop is closed: a strict test fails then, unless it has failed already.
    """
    import uvloop

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop, debug=debug)
    try:
        yield runner
    except BaseException:
        _close(runner)
        raise
    for one in _close(runner):
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _close(runner: asyncio.Runner) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        runner.close()
    return found
