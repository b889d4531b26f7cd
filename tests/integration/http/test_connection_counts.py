"""Workers see each other's number of connections."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from cordata.http.accept import ConnectionCounts


def test_worker_waits_when_another_has_clearly_fewer(tmp_path: Path) -> None:
    with (
        closing(ConnectionCounts(tmp_path / "s", 7)) as one,
        closing(ConnectionCounts(tmp_path / "s", 7)) as two,
    ):
        one.heartbeat()
        two.heartbeat()
        one.publish(2)
        two.publish(0)
        assert not one.is_our_turn()
        assert two.is_our_turn()
        two.publish(1)
        assert one.is_our_turn()


def test_worker_makes_the_directory_when_it_is_the_first_that_needs_it(tmp_path: Path) -> None:
    with closing(ConnectionCounts(tmp_path / "data" / "run" / "s", 7)) as one:
        one.heartbeat()
    assert (tmp_path / "data" / "run").stat().st_mode & 0o777 == 0o700


def test_table_has_its_disk_blocks_from_the_start(tmp_path: Path) -> None:
    """A hole that cannot be filled when the disk is full would be a SIGBUS at the first write."""
    with closing(ConnectionCounts(tmp_path / "s", 7)):
        status = (tmp_path / "s").stat()
        assert status.st_blocks * 512 >= status.st_size > 0


def test_worker_does_not_wait_for_another_socket(tmp_path: Path) -> None:
    with (
        closing(ConnectionCounts(tmp_path / "s", 7)) as one,
        closing(ConnectionCounts(tmp_path / "s", 8)) as other,
    ):
        one.heartbeat()
        other.heartbeat()
        one.publish(9)
        assert one.is_our_turn()


def test_worker_does_not_wait_when_the_other_has_left(tmp_path: Path) -> None:
    with closing(ConnectionCounts(tmp_path / "s", 7)) as one:
        one.heartbeat()
        one.publish(9)
        with closing(ConnectionCounts(tmp_path / "s", 7)) as two:
            two.heartbeat()
            assert not one.is_our_turn()
        assert one.is_our_turn()


def test_worker_does_not_wait_when_the_other_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 1_000_000
    monkeypatch.setattr("cordata.http.accept._now_ms", lambda: now_ms)
    with (
        closing(ConnectionCounts(tmp_path / "s", 7)) as one,
        closing(ConnectionCounts(tmp_path / "s", 7)) as two,
    ):
        two.heartbeat()
        now_ms += 3001
        one.heartbeat()  # takes the silent one's slot
        one.publish(9)
        assert one.is_our_turn()
        two.heartbeat()  # it lives after all, and takes another
        assert not one.is_our_turn()


def test_worker_is_not_seen_when_the_table_is_full(tmp_path: Path) -> None:
    many = [ConnectionCounts(tmp_path / "s", 7) for _ in range(66)]
    for number, one in enumerate(many):
        one.heartbeat()
        one.publish(number)
    assert not many[60].is_our_turn()
    assert not many[65].is_our_turn()
    for one in many:
        one.close()
