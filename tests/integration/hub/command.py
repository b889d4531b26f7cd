"""The `alpinehub` command beside the hub of a test, on the same store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.engine.stores import url_of
from tests.integration.hub.material import MASTER_KEY
from tests.servers import fork_server

Run = Callable[..., subprocess.CompletedProcess[str]]


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
    """Run `alpinehub ...` with the configuration of the test."""
    config = configure(tmp_path)

    def run_(*words: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": ":".join(sys.path), "CORDATA_CONFIG": str(config)}
        return fork_server.run("alpinehub", words, given=given, environment=environment | variables)

    return run_
