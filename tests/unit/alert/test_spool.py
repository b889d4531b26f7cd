"""What waits in a file: kept whole, taken once, by one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from cordata.alert import Spool
from cordata.core.alert import AlertGroup, group_of


def group(cause: str) -> AlertGroup:
    return group_of(cause, f"{cause} failed", place="host", now_us=1, urgent=True)


def test_taken_has_what_was_added_and_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool([tmp_path])
    assert not spool.waits
    spool.add([group("a"), group("b")])
    spool.add([group("a")])
    assert spool.waits
    with spool.taken() as groups:
        assert [one.cause for one in groups] == ["a", "b", "a"]
    assert not spool.waits


def test_taken_is_all_there_again_when_the_block_failed(tmp_path: Path) -> None:
    spool = Spool([tmp_path])
    spool.add([group("a")])
    with pytest.raises(ValueError, match="store"), spool.taken():
        raise ValueError("the store is away")
    with spool.taken() as groups:
        assert groups == [group("a")]


def test_taken_is_empty_while_another_has_it(tmp_path: Path) -> None:
    spool = Spool([tmp_path])
    spool.add([group("a")])
    with spool.taken() as first, Spool([tmp_path]).taken() as second:
        assert (len(first), len(second)) == (1, 0)


def test_taken_leaves_out_a_line_that_a_crash_cut_off(tmp_path: Path) -> None:
    spool = Spool([tmp_path])
    spool.add([group("a")])
    with (tmp_path / "alerts.waiting").open("ab") as file:
        file.write(b'\n{"fingerprint": "0a1b')
    with spool.taken() as groups:
        assert groups == [group("a")]


def test_line_that_was_cut_off_spoils_no_later_one(tmp_path: Path) -> None:
    spool = Spool([tmp_path])
    (tmp_path / "alerts.waiting").write_bytes(b'{"fingerprint": "0a1b')
    spool.add([group("a")])
    with spool.taken() as groups:
        assert groups == [group("a")]


def test_taken_is_not_taken_again_when_the_file_cannot_be_emptied(tmp_path: Path) -> None:
    fd = os.memfd_create("alerts", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    (tmp_path / "alerts.waiting").symlink_to(f"/proc/self/fd/{fd}")
    spool = Spool([tmp_path])
    for cause in ("a", "b"):
        spool.add([group(cause)])
        assert spool.waits
        with spool.taken() as groups:
            assert groups == [group(cause)]
        assert not spool.waits
    os.close(fd)


def test_add_uses_the_second_directory_when_the_first_cannot_be_written(tmp_path: Path) -> None:
    spool = Spool([tmp_path / "none", tmp_path])
    spool.add([group("a")])
    with spool.taken() as groups:
        assert groups == [group("a")]


def test_add_says_so_when_there_is_nowhere_to_write(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Spool([tmp_path / "none"]).add([group("a")])


def test_add_is_bounded(tmp_path: Path) -> None:
    spool = Spool([tmp_path])
    big = group_of("a", "x y " * 1000, place="host", now_us=1, urgent=True)
    for _ in range(20):
        spool.add([big] * 100)
    assert (tmp_path / "alerts.waiting").stat().st_size < 2 * (1 << 20)
