"""Which application and which file a command takes, and what it says where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata, write_config

from cordata.config import find_file
from cordata.errors import ConfigError

ROLES = [
    ("server", "--test-mode"),
    ("worker", "0", "--test-mode"),
    ("primary",),
    ("job", "tally"),
    ("migrate",),
    ("config", "check"),
]


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """Where a role would keep its things if it started, instead of the system's directories."""
    return {
        "STATE_DIRECTORY": str(tmp_path / "state"),
        "CORDATA_RUNTIME": str(tmp_path / "run"),
        "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"),
    }


@pytest.mark.parametrize("role", ROLES, ids=" ".join)
@pytest.mark.parametrize("with_file", [True, False])
def test_nothing_starts_and_nothing_is_made_when_no_application_is_named(
    tmp_path: Path, place: dict[str, str], role: tuple[str, ...], with_file: bool
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    if with_file:
        (here / "cordata.toml").write_text("[log]\nlevel = 'info'\n")
    result = cordata(*role, cwd=here, **place)
    assert result.returncode == 78, result
    assert result.stderr.count("there is no application to run") == 1
    if with_file:
        assert f"{here / 'cordata.toml'}: [app] import is not set" in result.stderr
    # What to write, and the other way.
    for step in ('import = "MODULE:APP"', "[app]", "--app MODULE:APP", "cordata new"):
        assert step in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def found(*, cwd: Path, **environment: str) -> str:
    """The file that a command reads, as it says."""
    result = cordata("config", "check", cwd=cwd, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_file_of_the_working_directory_is_found_after_those_that_are_named(tmp_path: Path) -> None:
    here, named = tmp_path / "here", tmp_path / "named"
    for directory in (here, named):
        directory.mkdir()
        write_config(directory)
    local, other = here / "cordata.toml", named / "cordata.toml"
    assert found(cwd=here) == f"{local}: ok\n"
    assert found(cwd=here, CORDATA_CONFIG=str(other)) == f"{other}: ok\n"
    result = cordata("config", "check", "--config", str(other), cwd=here)
    assert result.stdout == f"{other}: ok\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_directory_that_this_user_may_not_look_into_has_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `runuser -u cordata cordata ...`, typed in root's home."""
    path, elsewhere = write_config(tmp_path), Path("/etc/passwd")
    tmp_path.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    os.seteuid(65_534)
    try:
        assert find_file(None, {}, default=elsewhere) == elsewhere
        with pytest.raises(ConfigError, match=r"cordata\.toml: no such file, or this user may not"):
            find_file(path, {})
    finally:
        os.seteuid(0)


def test_directory_that_is_gone_has_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, elsewhere = tmp_path / "gone", Path("/etc/passwd")
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_file(None, {}, default=elsewhere) == elsewhere


@pytest.mark.parametrize("mode", [(0o666, 0o755), (0o644, 0o777), (0o644, 0o1777)])
def test_file_that_others_may_change_is_read_only_when_it_is_named(
    tmp_path: Path, mode: tuple[int, int]
) -> None:
    # What it names is imported: anybody could have their code run by whoever calls a command here.
    path = write_config(tmp_path)
    path.chmod(mode[0])
    tmp_path.chmod(mode[1])
    for command in (("config", "check"), ("outbox", "list"), ("alerts", "list")):
        result = cordata(*command, cwd=tmp_path)
        assert result.returncode == 78
        assert f"{path} was not named and is not read: every user may write" in result.stderr
        assert f"--config {path}" in result.stderr
    assert found(cwd=tmp_path, CORDATA_CONFIG=str(path)) == f"{path}: ok\n"


def test_drop_in_that_others_may_change_is_read_only_when_its_file_is_named(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    tmp_path.chmod(0o755)
    (tmp_path / "conf.d").mkdir(mode=0o755)
    drop_in = tmp_path / "conf.d/more.toml"
    drop_in.write_text("[log]\nlevel = 'error'\n")
    assert found(cwd=tmp_path) == f"{path}: ok\n"
    drop_in.chmod(0o666)
    result = cordata("config", "check", cwd=tmp_path)
    assert result.returncode == 78
    assert f"{drop_in} was not named and is not read: every user may write" in result.stderr
    assert f"--config {path}" in result.stderr
    assert found(cwd=tmp_path, CORDATA_CONFIG=str(path)) == f"{path}: ok\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_of_another_user_is_not_read_by_root_unless_it_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = write_config(tmp_path)
    for owned in (path, tmp_path):
        os.chown(owned, 65_534, 65_534)
        result = cordata("config", "check", cwd=tmp_path)
        assert result.returncode == 78
        assert f"is not read: {owned} belongs to the user nobody" in result.stderr
        os.chown(owned, 0, 0)
    assert found(cwd=tmp_path) == f"{path}: ok\n"
    # A link to root's file does not make what lies beside the link root's.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "cordata.toml").symlink_to(path)
    os.chown(elsewhere, 65_534, 65_534)
    result = cordata("config", "check", cwd=elsewhere)
    assert result.returncode == 78 and "belongs to the user nobody" in result.stderr
