"""What a child wrote, on its way to the journal."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cordata.pool.worker.output import (
    LINE,
    LINES_PER_S,
    TAIL_BYTES,
    TAIL_LINES,
    Line,
    LineCutter,
    Tail,
    WorkerOutput,
)

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_lines_are_cut_wherever_the_reads_end() -> None:
    text = f"a\n\x1e4d-7 {GIVEN} r-1\nb\n<4>c\x1f<3>e\x1f\x1ff\nhalf\x1e \nd\n"
    data = text.encode() + b"\xff\n"
    wanted = [
        Line("a", INFO, "", ""),
        Line("b", INFO, "4d-7", "r-1", GIVEN),
        Line("c", WARNING, "4d-7", "r-1", GIVEN, trail="<3>e\n\nf"),
        Line("half", INFO, "4d-7", "r-1", GIVEN),
        Line("d", INFO, "", ""),
        Line("\ufffd", INFO, "", ""),
    ]
    for size in (1, 2, 3, 5, len(data)):
        lines = LineCutter()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [line for piece in pieces for line in lines.feed(piece)] == wanted


def test_line_without_end_is_cut_and_comes_at_the_end() -> None:
    lines = LineCutter()
    assert [len(line.text) for line in lines.feed(b"x" * 40_000)] == [1000, 1000]
    assert [line.text for line in lines.feed(b"\nlast")] == ["x" * 1000]
    assert [line.text for line in lines.end()] == ["last"]
    assert list(lines.end()) == []


@pytest.mark.parametrize("mark", [b"\x1e", b"\x1ex y", b"\x1e4d r", b"\x1e4d-\xc2\xb2 r"])
def test_mark_that_is_none_is_no_call(mark: bytes) -> None:
    lines = LineCutter()
    list(lines.feed(b"\x1e4d-7  r\n" + mark + b"\n"))
    assert [line.call_id for line in lines.feed(b"a\n")] == [""]


def test_flood_is_cut_off_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(INFO)
    output = WorkerOutput("0", 77, running=lambda: "")
    output.feed(b"x\n" * (LINES_PER_S + 5), 10.2)
    assert len(caplog.records) == LINES_PER_S
    output.feed(b"\x1e4d-3  r\nlast\n", 11.0)
    assert [record.getMessage() for record in caplog.records[LINES_PER_S:]] == [
        "5 lines of child 77 were left out",
        "last",
    ]
    assert caplog.records[-1].__dict__["CALL_ID"] == "4d-3"
    assert "SPAN_ID" in caplog.records[-1].__dict__
    assert "CALL_ID" not in caplog.records[0].__dict__


def test_last_lines_are_of_one_call() -> None:
    running = ""
    output = WorkerOutput("0", 77, running=lambda: running)
    output.feed(b"warm\n", 1.0)
    running = "4d-3"
    output.feed(b"\x1e4d-3 r\ncard 4111\n\x1e \n", 1.0)
    running = "4d-4"
    assert output.tail.lines("4d-4") == []  # nothing of call 3, and nothing of the start
    output.feed(b"free(): invalid pointer\n", 1.0)  # C's, which knows no mark
    output.feed(b"\x1e4d-4 r\nlast words\n", 1.0)
    assert output.tail.lines("4d-4") == ["free(): invalid pointer", "last words"]
    assert output.tail.lines("") == output.tail.lines("4d-3") == []


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text(max_size=30).map(lambda text: text * 60), max_size=60))
def test_tail_keeps_the_last_lines_within_its_bounds(lines: list[str]) -> None:
    kept = Tail()
    for line in lines:
        kept.add(line, "4d-7")
    found = kept.lines("4d-7")
    assert len(found) <= TAIL_LINES
    assert sum(len(line.encode()) for line in found) <= TAIL_BYTES
    assert list(found) == [line[:LINE] for line in lines[len(lines) - len(found) :]]
    assert not lines or found


def test_rest_of_a_long_record_keeps_its_level() -> None:
    cutter = LineCutter()
    found = [*cutter.feed(b"<3>" + b"x" * 40_000), *cutter.feed(b"\n<6>next\n")]
    assert [line.level for line in found] == [ERROR, ERROR, ERROR, INFO]
    assert [line.text[:4] for line in found] == ["xxxx", "xxxx", "xxxx", "next"]
