"""Log records become journal fields, or one readable line."""

from __future__ import annotations

import logging
import os
import sys

from cordata.log import fields, request_id
from cordata.systemd.journal import LineFormatter, _journal_fields, stderr_is_journal


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


def test_line_stays_one_line_when_the_message_has_line_breaks() -> None:
    assert LineFormatter().format(record("a\nb\x1b[31m")).endswith(r"http: a\nb\x1b[31m")


def test_line_is_coloured_only_when_asked() -> None:
    assert LineFormatter(colour=True).format(record("x")).startswith("\x1b[33m")
    assert "\x1b" not in LineFormatter().format(record("x"))


def test_line_carries_the_traceback_indented_when_there_is_one() -> None:
    made = record("x")
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        made.exc_info = sys.exc_info()
    first, *rest = LineFormatter().format(made).split("\n")
    assert first.endswith("http: x")
    assert all(line.startswith("    ") for line in rest)
    assert "RuntimeError: broken" in rest[-1]


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
