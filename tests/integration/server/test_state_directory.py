"""A configuration whose state directory is not there: made by a role, and by nobody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata, write_config
from tests.integration.server.managed import managed
from tests.integration.store.parts import small_disk


def test_role_makes_the_directory_for_itself_alone_when_it_is_missing(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    state = tmp_path / "state"
    state.rmdir()
    checked = cordata("config", "check", "--config", str(config))
    assert checked.returncode == 0
    assert f"{state} does not exist" in checked.stderr
    listed = cordata("outbox", "list", "--config", str(config))
    assert listed.returncode == 1
    assert "--config FILE" in listed.stderr
    assert not state.exists()
    with managed(config, "primary") as primary:
        primary.until_ready()
        assert state.stat().st_mode & 0o777 == 0o700
        assert primary.stop()[0] == 0
    assert not cordata("config", "check", "--config", str(config)).stderr


def test_role_ends_with_78_when_the_directory_cannot_be_made(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    config.write_text(config.read_text().replace('state = "state"', 'state = "/proc/none"'))
    result = cordata("primary", "--config", str(config))
    assert result.returncode == 78
    assert "[paths] state /proc/none cannot be created" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("role", [("primary",), ("worker", "0")], ids=["primary", "worker"])
def test_role_may_come_again_when_the_disk_is_too_full_for_the_directory(
    tmp_path: Path, role: tuple[str, ...]
) -> None:
    config = write_config(tmp_path)
    with small_disk(tmp_path / "disk", "1m,nr_inodes=1") as disk:
        config.write_text(config.read_text().replace('state = "state"', f'state = "{disk}/state"'))
        result = cordata(*role, "--config", str(config))
    assert result.returncode == 1  # 78 would be for good
    assert "state cannot be created: No space left on device" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_server_says_what_is_wrong_with_the_directory_that_it_is_to_make(tmp_path: Path) -> None:
    words = ("server", "--listen", "127.0.0.1:0", "--config", str(write_config(tmp_path)))
    with small_disk(tmp_path / "disk", "1m,nr_inodes=1") as disk:
        for directory, code in ((disk / "state", 1), (Path("/proc/none"), 78)):
            result = cordata(*words, "--state", str(directory))
            assert (result.returncode, "bug" in result.stderr) == (code, False)
            assert f"{directory} cannot be created: No s" in result.stderr
