"""The same on PostgreSQL: the harness, and what `cordata new` makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cordata.scaffold import make

_SCRIPT = """
import asyncio, sys
from datetime import UTC, datetime
from cordata.testing import open_app
from shop7.app import app

async def main(url):
    now, config = datetime(2026, 7, 1, 8, tzinfo=UTC), {"store": {"url": url}}
    async with open_app(app, now=now, config=config) as harness:
        assert harness.ctx.store.dialect == "postgres"
        for item in ("boots", "rope"):
            assert (await harness.request("POST", "/orders", json={"item": item})).status == 201
        assert await harness.drain() == 2
        first, second = (await harness.request("GET", "/orders")).json()
        assert first["confirmed"] and second["placed_at"] == now.isoformat()
        await harness.publish("order.placed", {})
        assert await harness.drain(raising=False) == 1
        harness.advance(days=1)
        assert await harness.drain(raising=False) == 1
        await harness.run_job("figures")
        *_, figures = await harness.mails()
        assert figures.subject == "Orders of 01.07.2026: 2", figures
        assert [entry.state for entry in await harness.outbox()] == ["done", "done", "pending"]
    print("done")

asyncio.run(main(sys.argv[1]))
"""


def test_new_application_works_in_a_test_on_postgresql(tmp_path: Path, database: str) -> None:
    make("shop7", tmp_path / "shop7")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, database],
        cwd=tmp_path / "shop7",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
