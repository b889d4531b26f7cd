"""What a child wrote, on its way to the journal."""

from __future__ import annotations

import logging

import pytest

from cordata.pool.worker.output import LINES_PER_S, Line, Lines, Output

INFO, WARNING = logging.INFO, logging.WARNING


def test_lines_are_cut_wherever_the_reads_end() -> None:
    data = b"a\n\x1e7 r-1\nb\n<4>c\nhalf\x1e0 \nd\n\xff\n"
    wanted = [
        Line("a", INFO, 0, ""),
        Line("b", INFO, 7, "r-1"),
        Line("c", WARNING, 7, "r-1"),
        Line("half", INFO, 7, "r-1"),
        Line("d", INFO, 0, ""),
        Line("\ufffd", INFO, 0, ""),
    ]
    for size in (1, 2, 3, 5, len(data)):
        lines = Lines()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [line for piece in pieces for line in lines.feed(piece)] == wanted


def test_line_without_end_is_cut_and_comes_at_the_end() -> None:
    lines = Lines()
    assert [len(line.text) for line in lines.feed(b"x" * 40_000)] == [1000, 1000]
    assert [line.text for line in lines.feed(b"\nlast")] == ["x" * 1000]
    assert [line.text for line in lines.end()] == ["last"]
    assert list(lines.end()) == []


@pytest.mark.parametrize("mark", [b"\x1e", b"\x1ex y", b"\x1e-1 r", b"\x1e\xc2\xb2 r"])
def test_mark_that_is_none_is_no_call(mark: bytes) -> None:
    lines = Lines()
    list(lines.feed(b"\x1e7 r\n" + mark + b"\n"))
    assert [line.serial for line in lines.feed(b"a\n")] == [0]


def test_flood_is_cut_off_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(INFO)
    output = Output("0", 77, in_hand=lambda: 0, call_id=lambda serial: f"e-{serial}")
    output.feed(b"x\n" * (LINES_PER_S + 5), 10.2)
    assert len(caplog.records) == LINES_PER_S
    output.feed(b"\x1e3 r\nlast\n", 11.0)
    assert [record.getMessage() for record in caplog.records[LINES_PER_S:]] == [
        "5 lines of child 77 are left out",
        "last",
    ]
    assert caplog.records[-1].__dict__["CALL_ID"] == "e-3"
    assert "CALL_ID" not in caplog.records[0].__dict__


def test_last_lines_are_of_one_call() -> None:
    in_hand = 0
    output = Output("0", 77, in_hand=lambda: in_hand, call_id=str)
    output.feed(b"warm\n", 1.0)
    in_hand = 3
    output.feed(b"\x1e3 r\ncard 4111\n\x1e0 \n", 1.0)
    in_hand = 4
    assert output.tail.lines(4) == ()  # nothing of call 3, and nothing of the start
    output.feed(b"free(): invalid pointer\n", 1.0)  # C's, which knows no mark
    output.feed(b"\x1e4 r\nlast words\n", 1.0)
    assert output.tail.lines(4) == ("free(): invalid pointer", "last words")
    assert output.tail.lines(0) == output.tail.lines(3) == ()
