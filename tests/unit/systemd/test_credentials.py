"""Credentials are files; a missing one fails nothing."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from cordata.errors import ConfigError
from cordata.systemd import Credentials
from cordata.systemd.credentials import create


def test_read_strips_one_line_break(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"secret\n")
    (tmp_path / "b").write_bytes(b"secret \r\n")
    (tmp_path / "c").write_bytes(b"two\n\n")
    credentials = Credentials(tmp_path)
    assert credentials.read("a") == b"secret"
    assert credentials.read("b") == b"secret "
    assert credentials.read("c") == b"two\n"


def test_read_is_none_when_file_or_directory_is_missing(tmp_path: Path) -> None:
    assert Credentials(tmp_path).read("smtp-password") is None
    assert Credentials(tmp_path / "none").text("smtp-password") is None
    assert Credentials(tmp_path / "none").names() == []


def test_read_takes_the_name_systemd_gives_when_a_directory_was_loaded(tmp_path: Path) -> None:
    (tmp_path / "cordata_smtp-user").write_text("me\n")
    assert Credentials(tmp_path).text("smtp-user") == "me"
    assert Credentials(tmp_path).names() == ["smtp-user"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_read_names_the_file_and_the_next_step_when_this_user_may_not(tmp_path: Path) -> None:
    directory = tmp_path / "credentials"
    directory.mkdir(mode=0o700)
    os.seteuid(65_534)
    try:
        with pytest.raises(ConfigError, match="/credentials/master-key: Perm") as caught:
            Credentials(directory).read("master-key")
    finally:
        os.seteuid(0)
    assert str(caught.value.hint).startswith("run it as root")


def test_read_refuses_when_the_file_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 65_537)
    with pytest.raises(ConfigError, match="larger than"):
        Credentials(tmp_path).read("a")


def test_read_refuses_when_the_name_leaves_the_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no name"):
        Credentials(tmp_path).read("../passwd")


def test_text_refuses_when_the_secret_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        Credentials(tmp_path).text("a")


@pytest.mark.parametrize("data", [b"hush\nhush\n", b"hu\0sh", b"hush\r\n\n", b"\nhush"])
def test_text_refuses_when_the_secret_is_more_than_a_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "smtp-password").write_bytes(data)
    with pytest.raises(ConfigError, match="more than one line") as caught:
        Credentials(tmp_path).text("smtp-password")
    assert "hu" not in str(caught.value).removeprefix(str(tmp_path))


@pytest.mark.parametrize("data", [b"hush", b"hush\n", b"hush\r\n"])
def test_text_takes_a_line_with_or_without_its_end(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "smtp-password").write_bytes(data)
    assert Credentials(tmp_path).text("smtp-password") == "hush"


def test_create_never_replaces_when_the_secret_exists(tmp_path: Path) -> None:
    directory = tmp_path / "credentials"
    assert create(directory, "master-key", b"one")
    assert not create(directory, "master-key", b"two")
    assert Credentials(directory).read("master-key") == b"one"
    assert (directory / "master-key").stat().st_mode & 0o777 == 0o600


def test_create_leaves_nothing_when_the_disk_is_full(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))  # as a full disk: only the write fails
    try:
        with pytest.raises(ConfigError, match="master-key: File too large"):
            create(tmp_path, "master-key", b"one" * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert create(tmp_path, "master-key", b"two")
    assert Credentials(tmp_path).read("master-key") == b"two"
