"""A runtime directory that somebody else has made, so that their socket lies where ours should."""

from __future__ import annotations

import os
import re
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.cli.command import ROOT, cordata, python

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
NOBODY = 65534


@contextmanager
def socket_of(user: int, directory: Path) -> Iterator[socket.socket]:
    """A worker's socket of this user, in their directory."""
    default = directory / "pool" / "default"
    default.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(default / "0.control.sock"))
        listening.listen(8)
        for path in (directory, default.parent, default, default / "0.control.sock"):
            os.chown(path, user, user)
        yield listening


def was_called(listening: socket.socket) -> bool:
    """Whether somebody has connected, as far as one can see now."""
    return bool(select.select([listening], [], [], 0)[0])


@pytest.mark.parametrize("command", [("call", "echo"), ("pool", "status")], ids=["call", "status"])
def test_root_does_not_connect_to_the_socket_of_another_user(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "state").mkdir()
    config = tmp_path / "cordata.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}/state"\nruntime = "{tmp_path}/run"\n')
    with socket_of(NOBODY, tmp_path / "run") as listening:
        result = cordata(*command, "--config", str(config))
        assert not was_called(listening)
    assert result.returncode == 1, result.stderr
    assert re.search(rf"error: {tmp_path}/run belongs to user {NOBODY}.*\nhint: ", result.stderr)


def test_root_calls_the_pool_of_the_user_who_has_the_state_directory(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    config = tmp_path / "cordata.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}/state"\nruntime = "{tmp_path}/run"\n')
    with socket_of(NOBODY, tmp_path / "run") as listening:
        result = cordata("call", "echo", "--timeout", "0.5", "--config", str(config))
        assert was_called(listening)
    assert (result.returncode, "belongs to" in result.stderr) == (75, False), result.stderr


@pytest.mark.parametrize("what", ["directory", "link", "open to all"])
def test_make_run_refuses_a_runtime_directory_that_others_have_made(
    tmp_path: Path, what: str
) -> None:
    """With a long STATE it is in the temporary directory, under a name that can be guessed."""
    temporary, state = tmp_path / "tmp", tmp_path / ("long" * 30)
    state.mkdir()
    temporary.mkdir()
    temporary.chmod(0o1777)
    theirs = temporary / f"cordata-0-{state.stat().st_ino}"
    if what == "link":
        target = tmp_path / "target"
        target.mkdir()
        os.chown(target, NOBODY, NOBODY)
        theirs.symlink_to(target)
        os.chown(theirs, NOBODY, NOBODY, follow_symlinks=False)
    else:
        theirs.mkdir()
        theirs.chmod(0o777 if what == "open to all" else 0o700)
        os.chown(theirs, 0 if what == "open to all" else NOBODY, 0)
    program = str(ROOT / "packaging" / "run.py")
    result = python(program, "0", str(state), TMPDIR=str(temporary))
    assert result.returncode == 1, result.stderr
    assert f"{theirs} is not a directory of yours alone" in result.stderr
    assert "STATE" in result.stderr  # what to do
    assert not list(state.iterdir())
    assert not list((theirs if theirs.is_dir() else target).iterdir())


def test_make_run_takes_and_keeps_the_settings_that_are_there(tmp_path: Path) -> None:
    config = tmp_path / "cordata.toml"
    config.write_text('[mail]\nhots = "localhost"\n')
    result = python(str(ROOT / "packaging" / "run.py"), "0", str(tmp_path))
    assert result.returncode == 1 and "hots" in result.stderr, result
    assert config.read_text() == '[mail]\nhots = "localhost"\n'


def test_make_run_uses_its_directory_when_the_settings_name_another_application(
    tmp_path: Path,
) -> None:
    config = tmp_path / "cordata.toml"
    config.write_text('[app]\nimport = "nowhere:app"\n')
    result = python(str(ROOT / "packaging" / "run.py"), "0", str(tmp_path))
    assert result.returncode == 78 and "nowhere" in result.stderr, result
    assert (tmp_path / "credentials" / "master-key").exists()


def test_make_run_says_what_to_change_before_it_makes_anything(tmp_path: Path) -> None:
    program, state = str(ROOT / "packaging" / "run.py"), tmp_path / "a state"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        used = str(taken.getsockname()[1])
        for port, said in (("", "is no port"), ("99999", "is no port"), (used, "in use")):
            result = python(program, port, str(state))
            assert result.returncode == 1 and said in result.stderr, result
            assert "hint: make run PORT=" in result.stderr
    file = tmp_path / "file"
    file.touch()
    for place in ("", str(file), str(file / "below"), "/proc/state"):
        result = python(program, "0", place, cwd=tmp_path)
        assert result.returncode == 1 and "hint: make run STATE=.run" in result.stderr, result
        assert "Traceback" not in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert not state.exists()
