"""The pages say truly whether a call has begun, wherever their writer was killed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cordata.pool.shared import page
from cordata.pool.shared.page import ConnectionPage, StatusReader, StatusWriter, set_drained
from cordata.pool.shared.paths import ChildAddress, Place, parse


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "0.1.status"
    path.write_bytes(bytes(page.SIZE))
    return path


def test_new_page_tells_of_no_call(file: Path) -> None:
    reader = StatusReader.open(file)
    assert reader.takes_calls and not reader.read().running
    assert (reader.in_flight, reader.busy_since) == (0, 0.0)


def test_page_tells_the_call_that_runs_and_the_last_one() -> None:
    shared = memoryview(bytearray(page.SIZE))
    writer = StatusWriter(shared)
    reader = StatusReader(shared)
    assert reader.takes_calls
    for number, command in enumerate(("short", "short", "é" * 200, "", "short"), 1):
        writer.begin(9, 100 + number, command, 10.5, 70.5)
        found = reader.read()
        assert (found.running, found.begun, found.ended) == (True, number, number - 1)
        assert (found.client, found.id) == (9, 100 + number)
        assert (found.started, found.deadline, found.command) == (10.5, 70.5, command)
        assert (reader.in_flight, reader.busy_since) == (1, 10.5)
        writer.end(failed=number > 3)
        assert (reader.read().running, reader.read().failed) == (False, max(0, number - 3))
    writer.set_waiting(3)
    assert reader.in_flight == 3
    set_drained(shared, True)
    assert not reader.takes_calls and reader.read().drained


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 5))
def test_page_never_says_begun_when_the_writer_died_before_it_said_so(stores: int) -> None:
    before = bytearray(page.SIZE)
    writer = StatusWriter(memoryview(before))
    writer.begin(1, 1, "a", 1.0, 2.0)
    writer.end()
    after = bytearray(before)
    StatusWriter(memoryview(after)).begin(2, 4, "a", 3.0, 4.0)
    torn = bytearray(before)
    # The order of `begin`: client, id, started, deadline, then begun.
    for at in (48, 56, 64, 72, 16)[:stores]:
        torn[at : at + 8] = after[at : at + 8]
    found = StatusReader(memoryview(torn)).read()
    assert found.running == (stores == 5)
    if found.running:
        assert found == StatusReader(memoryview(after)).read()


class Words:
    """The words of a connection's page; the client revokes right after so many steps."""

    def __init__(self, after: int, number: int) -> None:
        self.values = [0, 0]
        self._after, self._number = after, number
        self._steps = itertools.count()
        self.found = -1

    def _step(self) -> None:
        if next(self._steps) == self._after:
            self.values[1] = self._number  # the client writes, waits, and reads:
            self.found = self.values[0]

    def __getitem__(self, at: int) -> int:
        value = self.values[at]
        self._step()
        return value

    def __setitem__(self, at: int, value: int) -> None:
        self.values[at] = value
        self._step()


@pytest.mark.parametrize("after", range(4))
def test_call_that_the_client_finds_not_begun_does_not_begin(
    page_of_connection: ConnectionPage, after: int
) -> None:
    words = Words(after, 5)
    page_of_connection._words.release()
    page_of_connection._words = words  # type: ignore[assignment]
    begins = page_of_connection.may_begin(5)
    if words.found >= 0 and words.found < 5:
        assert not begins
    if begins:
        assert words.found in (-1, 5), "the client knows that it has begun"


def test_connection_page_is_shared(page_of_connection: ConnectionPage) -> None:
    client = page_of_connection
    assert client.may_begin(1) and client.begun == 1
    client.revoke(3)
    assert not client.may_begin(2) and not client.may_begin(3)
    assert client.begun == 1
    assert client.may_begin(4) and client.begun == 4
    client.revoke(7)
    client.revoke(6)
    assert not client.may_begin(7), "a later mark revoked less than an earlier one"


@pytest.fixture
def page_of_connection() -> Iterator[ConnectionPage]:
    file = ConnectionPage.create()
    yield ConnectionPage(file)
    os.close(file)


def test_names_of_files_tell_the_child() -> None:
    pool = Path("/run/cordata/pool/slow")
    child = ChildAddress(pool, Place("2", 1), 1234)
    assert parse(pool, child.socket.name) == parse(pool, child.status.name) == child
    assert (child.pool, child.socket) == ("slow", pool / "2-1.1234.sock")
    assert child.control == pool / "2.control.sock"
    for other in (
        "2.control.sock",
        ".2.5.sock",
        "2.sock",
        "2.x.sock",
        "2.5.lock",
        "2.lock",
        "2-x.5.sock",
        "",
    ):
        assert parse(pool, other) is None
