"""`ctx.pool`: there when it is called, and not before."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.pool.managing import ENVIRONMENT
from tests.integration.pool.peer import Listening

from cordata import App
from cordata.config import Config, Document, build
from cordata.context import Context, EventContext, narrowed
from cordata.core.pool.message import CallFrame, Result
from cordata.errors import PoolClosed, PoolUnavailable
from cordata.factory import open_context
from cordata.store import Store
from cordata.vault import Vault


def config_of(tmp_path: Path, **tables: dict[str, Any]) -> Config:
    paths = {"state": str(tmp_path), "runtime": str(tmp_path / "run")}
    return build(Document(path=None, tables={"paths": paths, **tables}), {}, {})


async def test_context_calls_the_pool_of_its_host_and_ends_with_it(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    async with open_context(config, App("shop")) as ctx:
        event = narrowed(ctx, EventContext, group="g", event_id="e")
        assert event.pool is ctx.pool
        call = event.pool.start("render", 1)
        with Listening(tmp_path / "run" / "pool.sock") as manager:
            peer, _ = await asyncio.to_thread(manager.welcome)
            with peer:
                frame = await asyncio.to_thread(peer.expect, CallFrame)
                assert frame.timeout_s is not None
                assert 59.0 < frame.timeout_s <= 60.0
                peer.send(Result(id=frame.id, payload=frame.payload))
                assert await call == 1
    with pytest.raises(PoolClosed):
        await event.pool.execute("render")


async def test_call_without_a_timeout_has_that_of_its_commands_pool(tmp_path: Path) -> None:
    pools = {
        "call_timeout_s": 7.0,
        "slow": {"workers": ["1"], "commands": ["pdf.*"], "call_timeout_s": 90.0},
    }
    config = config_of(tmp_path, pool=pools)
    async with open_context(config, App("shop")) as ctx:
        calls = [ctx.pool.start("pdf.render"), ctx.pool.start("xml.check")]
        with Listening(tmp_path / "run" / "pool.sock") as manager:
            peer, _ = await asyncio.to_thread(manager.welcome)
            with peer:
                frames = [await asyncio.to_thread(peer.expect, CallFrame) for _ in calls]
                assert [round(frame.timeout_s or 0) for frame in frames] == [90, 7]
                for frame in frames:
                    peer.send(Result(id=frame.id))
                assert [await call for call in calls] == [None, None]


async def test_context_made_by_hand_has_no_pool(tmp_path: Path) -> None:
    async with open_context(config_of(tmp_path), App("shop")) as ctx:
        store: Store = ctx.store
        with pytest.raises(PoolUnavailable, match="no pool"):
            _ = Context(store=store, vault=Vault(None)).pool


def test_application_that_never_calls_imports_no_client() -> None:
    text = "import sys, cordata.factory; sys.exit('cordata.pool.client.client' in sys.modules)"
    argv = [sys.executable, "-c", text]
    assert subprocess.run(argv, check=False, env=ENVIRONMENT).returncode == 0
