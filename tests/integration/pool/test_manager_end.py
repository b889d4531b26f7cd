"""The manager's end, when it is cut short: nothing stays open in its loop, and nothing leaks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.integration.pool.inside import inside

from cordata.core.pool.message import CallFrame, Hello
from cordata.core.pool.order import Run


def sockets() -> set[str]:
    """All that are open in this process."""
    found = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    return {name for name in found if "socket:" in name}


async def test_manager_that_is_cancelled_ends_every_connection(tmp_path: Path) -> None:
    before = sockets()
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        async with inside(tmp_path) as here:
            await here.dial("worker")
            child, client = await here.dial("child", warm=True), await here.dial()
            refused = await here.dial()
            refused.send(Hello(role="client"))  # a second one
            client.send(CallFrame(1, "echo"))
            await here.expect(child, Run)
            peers, here.peers = here.peers, []  # they outlive the manager
            raise LookupError
    for _ in range(3):
        await asyncio.sleep(0)
    assert (here.hub.links, here.hub.ending) == (set(), {})
    for peer in peers:
        peer.close()
    assert sockets() <= before
