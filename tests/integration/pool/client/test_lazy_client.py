"""`ctx.pool`: there when it is called, and not before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.pool.client.test_fork import ENVIRONMENT
from tests.integration.pool.workers import workers

from cordata import App
from cordata.app_loader import load_runtime
from cordata.context import Context, EventContext, derive_context
from cordata.context_factory import open_context
from cordata.errors import DeadlineExceeded, PoolClosed, PoolUnavailable
from cordata.store import Store
from cordata.vault import Vault

COMMANDS = "tests.integration.pool.child.commands"


async def test_context_calls_the_pool_of_its_host_with_the_limits_of_its_commands(
    tmp_path: Path,
) -> None:
    """Those of `@app.command` before those of `[pool.NAME]`, and these before `[pool]`."""
    app = App("shop")
    app.command("hang", at=f"{COMMANDS}:hang", timeout=0.2)
    slow = '[pool.slow]\nworkers = ["1"]\ncommands = ["note"]\ncall_timeout_s = 0.3\n'
    with workers(tmp_path, slow) as pool, pool.worker("0"), pool.worker("1"):
        async with open_context(load_runtime(str(pool.config)), app) as ctx:
            event = derive_context(ctx, EventContext, group="g", event_id="e")
            assert event.pool is ctx.pool
            assert 30.0 < (await event.pool.execute("about"))["remaining"] <= 60.0
            for command in ("hang", "note"):
                with pytest.raises(DeadlineExceeded):
                    await ctx.pool.execute(command, [str(tmp_path / "noted"), 1, 2.0])
        with pytest.raises(PoolClosed):
            await event.pool.execute("about")


async def test_context_made_by_hand_has_no_pool(tmp_path: Path) -> None:
    with workers(tmp_path) as pool:
        async with open_context(load_runtime(str(pool.config)), App("shop")) as ctx:
            store: Store = ctx.store
            with pytest.raises(PoolUnavailable, match="no pool"):
                _ = Context(store=store, vault=Vault(None)).pool


def test_application_that_never_calls_imports_no_client() -> None:
    text = (
        "import sys, cordata.context_factory; sys.exit('cordata.pool.client.client' in sys.modules)"
    )
    argv = [sys.executable, "-c", text]
    assert subprocess.run(argv, check=False, env=ENVIRONMENT).returncode == 0
