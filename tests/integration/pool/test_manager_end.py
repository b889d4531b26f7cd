"""The manager's end, also when it is cut short: it comes, and nothing stays open or leaks."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import Raw, msgpack
from tests.integration.pool.inside import inside
from tests.integration.pool.managing import managed

from cordata.core.pool.message import CallFrame, Hello, Result
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


@pytest.mark.parametrize("in_hand", [False, True], ids=["idle", "in a call that does not end"])
def test_manager_ends_in_time_whatever_its_peers_do(tmp_path: Path, in_hand: bool) -> None:
    strict = {"PYTHONWARNINGS": "error::ResourceWarning"}
    large = Raw(msgpack.encode(b"x" * 2_000_000))
    with managed(tmp_path, "[pool]\nstop_timeout_s = 4.0\n") as manager, ExitStack() as open_:
        manager.until_logged("pool is ready")
        manager.end()
        manager.start(**strict)
        child, deaf = open_.enter_context(manager.child()), open_.enter_context(manager.client())
        open_.enter_context(manager.worker())
        deaf.send(CallFrame(1, "echo"))
        child.send(Result(child.expect(Run).id, large))  # it is not read
        if in_hand:
            open_.enter_context(manager.client()).send(CallFrame(2, "echo"))
            child.expect(Run)
        for _ in range(10):
            open_.enter_context(manager.dial())  # says nothing
            half = open_.enter_context(manager.client())
            half.raw(struct.pack(">I", 1_000_000) + b"\x82")
            crowd = open_.enter_context(manager.client())
            if in_hand:
                crowd.send(CallFrame(1, "echo"))
        began = time.monotonic()
        assert manager.end() == 0, manager.log
        print(f"it took {time.monotonic() - began:.2f} s")
        assert "unclosed resource" not in manager.log
