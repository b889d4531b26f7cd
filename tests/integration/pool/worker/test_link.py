"""A worker's connection to the manager, by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.pool.peer import Listening

from cordata.core.pool.message import Hello
from cordata.core.pool.order import ChildEvent, Drain
from cordata.pool.worker.link import Link


async def test_word_is_kept_for_the_next_manager_when_the_connection_has_just_failed(
    tmp_path: Path,
) -> None:
    welcomed = asyncio.Event()
    link = Link(
        str(tmp_path / "pool.sock"),
        lambda: Hello(role="worker", name="0"),
        on_welcome=welcomed.set,
        on_message=print,
        on_lost=welcomed.clear,
    )
    with Listening(tmp_path / "pool.sock") as manager:
        running = asyncio.ensure_future(link.run())
        first, _ = await asyncio.to_thread(manager.welcome)
        await welcomed.wait()
        assert link._writer is not None
        link._writer.transport.abort()
        await asyncio.sleep(0)  # it has failed, and the reader has not heard of it
        assert link.connected
        link.send(Drain())
        link.send(ChildEvent("exited", pid=7, start=1), keep=True)
        second, _ = await asyncio.to_thread(manager.welcome)
        with first, second:
            assert (await asyncio.to_thread(second.expect, ChildEvent)).pid == 7
        running.cancel()
