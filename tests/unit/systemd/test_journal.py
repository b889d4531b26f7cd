"""Log records become journal fields, or one readable line."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator

import pytest

from cordata.log import TrailFormatter, fields, request_id
from cordata.systemd.journal import (
    LineFormatter,
    _journal_fields,
    journal_handler,
    stderr_is_journal,
)


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("cordata.http", logging.WARNING, "/x.py", 7, message, args, None, "f")
    made.__dict__.update(extra)
    made.created = 1_769_846_400.1234
    return made


def test_line_is_readable_and_names_role_area_and_request() -> None:
    token = request_id.set("r-1")
    try:
        line = LineFormatter(role="worker@0").format(record("refused %d", 413))
    finally:
        request_id.reset(token)
    assert line == "2026-01-31T08:00:00.123Z WARNING worker@0 http: refused 413 (r-1)"


def test_line_stays_one_line_when_the_request_id_has_line_breaks() -> None:
    token = request_id.set("r-1)\n2026-01-31T08:00:00.123Z INFO forged")
    try:
        line = LineFormatter().format(record("refused"))
    finally:
        request_id.reset(token)
    assert "\n" not in line and "(r-1)\\n2026" in line


def test_line_stays_one_line_when_the_message_has_line_breaks() -> None:
    assert LineFormatter().format(record("a\nb\x1b[31m")).endswith(r"http: a\nb\x1b[31m")


def test_line_is_coloured_only_when_asked() -> None:
    assert LineFormatter(colour=True).format(record("x")).startswith("\x1b[33m")
    assert "\x1b" not in LineFormatter().format(record("x"))


def failed() -> logging.LogRecord:
    made = record("x")
    try:
        try:
            raise KeyError("eva")
        except KeyError as error:
            raise RuntimeError("broken for eva") from error
    except RuntimeError:
        made.exc_info = sys.exc_info()
    return made


@contextlib.contextmanager
def root_level(level: int) -> Iterator[None]:
    root = logging.getLogger()
    before = root.level
    root.setLevel(level)
    try:
        yield
    finally:
        root.setLevel(before)


def test_line_carries_types_and_places_indented_when_there_is_an_exception() -> None:
    with root_level(logging.INFO):
        first, *rest = LineFormatter().format(failed()).split("\n")
    assert first.endswith("http: x")
    assert rest[0] == "    RuntimeError"
    assert re.fullmatch(r"      /.*/test_journal\.py:\d+ in failed", rest[1])
    assert rest[2] == "    caused by KeyError"
    assert "eva" not in "".join(rest)


def test_journal_message_has_types_and_places_when_there_is_an_exception() -> None:
    with root_level(logging.INFO):
        text = TrailFormatter().format(failed())
    assert text.startswith("x\nRuntimeError\n  /") and "eva" not in text


def test_handler_of_the_journal_tells_no_messages_either() -> None:
    pytest.importorskip("systemd.journal")
    with root_level(logging.INFO):
        assert "eva" not in journal_handler().format(failed())


@pytest.mark.parametrize("formatter", [TrailFormatter(), LineFormatter()])
def test_exception_is_whole_at_level_debug(formatter: logging.Formatter) -> None:
    with root_level(logging.DEBUG):
        assert "RuntimeError: broken for eva" in formatter.format(failed())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Task exception was never retrieved\nfuture: <Task exception=V('eva')>", True),
        ("Exception in callback functools.partial(<function f>, 'eva')", True),
        ("an error occurred during closing of asynchronous generator <g eva>", True),
    ],
)
def test_line_of_asyncio_has_no_values(text: str, told: bool) -> None:
    made = record(text)
    made.name = "asyncio"
    with root_level(logging.INFO):
        line = LineFormatter().format(made)
    assert "eva" not in line and line.split("asyncio: ")[1][:5] == text[:5]


def test_journal_fields_hold_upper_case_extras_and_no_arguments() -> None:
    token = request_id.set("r-1")
    try:
        made = record("refused %s", "secret", **fields("abc", status=413))
    finally:
        request_id.reset(token)
    sent = dict(item.split(b"=", 1) for item in _journal_fields(made, "refused"))
    assert sent[b"MESSAGE"] == b"refused"
    assert sent[b"PRIORITY"] == b"4"
    assert sent[b"STATUS"] == b"413"
    assert sent[b"MESSAGE_ID"] == b"abc"
    assert sent[b"REQUEST_ID"] == b"r-1"
    assert sent[b"CODE_LINE"] == b"7"
    assert b"ARGS" not in sent
    assert not any(b"secret" in value for value in sent.values())


def test_stderr_is_journal_when_device_and_inode_match() -> None:
    stat = os.fstat(2)
    assert stderr_is_journal({"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"})
    assert not stderr_is_journal({"JOURNAL_STREAM": "1:2"})
    assert not stderr_is_journal({})


def test_journal_has_the_trace_of_the_request() -> None:
    token = request_id.set("0af7651916cd43dd8448eb211c80319c")
    try:
        sent = _journal_fields(record("x"), "x")
    finally:
        request_id.reset(token)
    assert b"TRACE_ID=0af7651916cd43dd8448eb211c80319c" in sent
    assert [one for one in sent if re.fullmatch(rb"SPAN_ID=[0-9a-f]{16}", one)]
    without = _journal_fields(record("x"), "x")
    assert not [one for one in without if one.startswith((b"TRACE_ID", b"SPAN_ID", b"REQUEST_ID"))]


def test_line_of_a_child_carries_its_further_lines_indented_and_escaped() -> None:
    line = LineFormatter().format(record("no rate", child_trail="KeyError\n  /x.py:7 in f\x1b[31m"))
    assert line.endswith("http: no rate\n    KeyError\n      /x.py:7 in f\\x1b[31m")


def test_field_of_an_application_is_no_part_of_the_line() -> None:
    assert LineFormatter().format(record("booked", trail=["anna"])).endswith("http: booked")
