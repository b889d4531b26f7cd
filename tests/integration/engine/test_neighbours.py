"""The death of a neighbour rings, once."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from tests.integration.engine.engine import app, build
from tests.integration.engine.parts import opened
from tests.servers.reaper import watched

from cordata import clock
from cordata.broker import Owner, Owners
from cordata.config.sections import EngineConfig
from cordata.services.neighbours import Neighbours


async def test_death_rings_once_when_nobody_has_reaped_the_process(tmp_path: Path) -> None:
    mine = Owner.register(tmp_path, name="mine")
    child = watched(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
    dead = Owner.register(tmp_path, name="dead")
    place = mine.id.rsplit(".", 3)[1]
    (tmp_path / "owner" / dead.id).rename(tmp_path / "owner" / f"dead@x.{place}.{child.pid}.0")
    rung: asyncio.Queue[None] = asyncio.Queue()
    neighbours = Neighbours(mine, Owners(tmp_path), lambda: rung.put_nowait(None), blind_s=0.0)
    assert neighbours.look() and rung.empty()
    assert child.stdin is not None
    child.stdin.close()  # it ends, and stays a zombie
    async with asyncio.timeout(10):
        await rung.get()
    assert neighbours.look()
    await asyncio.sleep(0.1)
    assert rung.empty()
    neighbours.close()
    child.wait()
    dead.close()
    mine.close()


async def test_worker_that_watches_counts_as_alive_when_it_rarely_looks(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        engine = build(store, tmp_path, app, EngineConfig(poll_s=120.0))
        engine.reclaim.heartbeat.touch()
        assert engine.reclaim.heartbeat.fresh(clock.monotonic() + 2 * 120.0 + 10.0)
        engine.owner.close()
