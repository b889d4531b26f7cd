"""`cordata.connect`: an application's own command, run by root, leaves no file of root's behind."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata, python, write_config
from tests.integration.server.managed import managed

SCRIPT = """
import asyncio, os, sys
from cordata import connect
from tests.integration.cli.shop import app

async def main():
    async with connect(app, sys.argv[1]) as ctx:
        ctx.vault.seal(b"x", context="test")
        await ctx.run(lambda tx: tx.publish("thing.done", {"n": 1}))
        print(os.geteuid(), os.getegid(), ctx.settings["shop"].owner)

for _ in range(2):  # a command may open it more than once
    asyncio.run(main())
"""


def run_script(config: Path) -> subprocess.CompletedProcess[str]:
    return python("-c", SCRIPT, str(config))


def test_connect_says_what_to_start_when_there_is_no_store_and_makes_none(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    cordata("credentials", "init", "--config", str(config))
    state = tmp_path / "state"
    state.mkdir(exist_ok=True)
    before = set(state.iterdir())
    listed = cordata("outbox", "list", "--config", str(config))
    for result in (run_script(config), listed):
        assert result.returncode == 1
        assert f"there is no store yet: no file {state / 'cordata.db'}" in result.stderr
    assert "hint: start primary.service" in listed.stderr
    assert set(state.iterdir()) == before


def test_store_that_was_there_before_is_said_to_be_gone(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    name = "tests.integration.cli.shop:app"
    assert cordata("migrate", "--app", name, "--config", str(config)).returncode == 0
    for path in (tmp_path / "state").glob("cordata.db*"):
        path.unlink()
    listed = cordata("outbox", "list", "--config", str(config))
    assert listed.returncode != 0
    assert "is gone, although it was in use before" in listed.stderr
    assert "hint: restore it from a backup" in listed.stderr


def test_connect_says_what_to_start_when_the_schema_is_missing(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    cordata("credentials", "init", "--config", str(config))
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state" / "cordata.db").touch()
    result = run_script(config)
    assert result.returncode == 1
    assert "the store's schema is not current" in result.stderr


@pytest.fixture
def open_path() -> Iterator[Path]:
    """Not in pytest's own: each new session, and some tests start one, shuts that to others."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_connect_becomes_the_owner_of_the_state_directory(open_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    # Modules are imported when they are needed, which may be after the change of user.
    probe = ["setpriv", f"--reuid={nobody.pw_uid}", "--clear-groups", sys.executable]
    if subprocess.run(
        [*probe, "-c", "import nacl.secret"], capture_output=True, check=False
    ).returncode:
        pytest.skip(f"others cannot read {sys.prefix}")
    config = write_config(open_path, "[shop]\nowner = 'Eva'\n")
    cordata("credentials", "init", "--config", str(config))  # readable by root only
    with managed(config, "primary") as primary:
        primary.until_ready()
        assert primary.stop()[0] == 0
    for directory in (open_path / "state", open_path / "run"):
        for path in (directory, *directory.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
    result = run_script(config)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"{nobody.pw_uid} {nobody.pw_gid} Eva"] * 2
    owners = {path.stat().st_uid for path in (open_path / "state").rglob("*")}
    assert owners == {nobody.pw_uid}
