"""The `alpinehub` command beside the hub of a test, on the same store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.integration.alpinebits_client.peers import Done
from tests.integration.engine.stores import url_of
from tests.integration.hub.material import MASTER_KEY
from tests.servers import fork_server

Run = Callable[..., Awaitable[Done]]


def configure(folder: Path, sections: str = "") -> Path:
    """Write the configuration of a test's hub and its master key; `sections`: more of it."""
    credentials = folder / "credentials"
    credentials.mkdir(mode=0o700, exist_ok=True)
    (credentials / "master-key").write_bytes(MASTER_KEY)
    (credentials / "master-key").chmod(0o600)
    config = folder / "cordata.toml"
    config.write_text(
        f'[paths]\nstate = "{folder}"\nruntime = "{folder / "run"}"\n'
        f'credentials = "{credentials}"\n[store]\nurl = "{url_of(folder)}"\n{sections}'
    )
    return config


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `alpinehub ...` with the configuration of the test; it must end with the exit code."""
    config = configure(tmp_path)

    async def run_(*words: str, code: int = 0, given: str = "", **variables: str) -> Done:
        environment = {"PYTHONPATH": ":".join(sys.path), "CORDATA_CONFIG": str(config)}
        done = await asyncio.to_thread(
            fork_server.run, "alpinehub", words, given=given, environment=environment | variables
        )
        assert done.returncode == code, done.stderr
        assert "--debug" in words or "Traceback" not in done.stderr
        return Done(code, done.stdout, done.stderr)

    return run_
