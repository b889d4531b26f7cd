"""The event loop of every role, and of every coroutine test: its end never hangs."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from cordata.systemd import watch_loop


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
    """A runner on a fresh uvloop, closed at the end whatever was left open.

    uvloop warns of a transport that was left open, then closes it. Where warnings are errors it
    gets no further than the first half and waits for ever for what it did not close. So they are
    given out when the loop is closed: a test that is strict fails, unless it has failed already.
    """
    import uvloop

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop, debug=debug)
    try:
        yield runner
    except BaseException:
        _close(runner)
        raise
    for left in _close(runner):
        warnings.warn_explicit(left.message, left.category, left.filename, left.lineno)


def _close(runner: asyncio.Runner) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        runner.close()
    return found
