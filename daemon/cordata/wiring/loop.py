"""The event loop of every role."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from cordata.systemd import watch_loop


def run_on_uvloop(role: Callable[[], Awaitable[int]]) -> int:
    """Run until the role ends. Returns its exit code."""
    import uvloop

    async def main() -> int:
        watch_loop(asyncio.get_running_loop())
        return await role()

    debug = bool(os.environ.get("PYTHONASYNCIODEBUG"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop, debug=debug or None) as runner:
        return runner.run(main())
