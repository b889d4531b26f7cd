"""What a log line may say of a request."""

from __future__ import annotations

import logging

import pytest

from cordata import events
from cordata.http.journal import loggable_path, report


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a/b?secret=1", "/a/b"),
        (b"/hook/k7GQ2mZt9xRw4LpVsYb3Nc8e/x", "/hook/k7GQ.../x"),
        (b"/hook/0123456789abcdef0123456789abcdef", "/hook/0123..."),
        (b"/a-long-word-without-any-digit-in-it", "/a-long-word-without-any-digit-in-it"),
        (b"/short1/x2", "/short1/x2"),
        (b"/" + b"x/" * 200, "/" + "x/" * 99 + "x"),
        (b"/nul\0and\nnewline\xff", "/nul?and?newline?"),
    ],
)
def test_path_is_cut_where_secrets_may_be(target: bytes, path: str) -> None:
    assert loggable_path(target) == path


@pytest.mark.parametrize(
    ("status", "level", "message_id"),
    [
        (404, logging.WARNING, events.REQUEST_REFUSED),
        (503, logging.ERROR, events.REQUEST_FAILED),
        (501, logging.WARNING, events.REQUEST_REFUSED),
        (505, logging.WARNING, events.REQUEST_REFUSED),
        (499, logging.INFO, events.REQUEST_FAILED),
        (200, logging.INFO, events.REQUEST_SERVED),
    ],
)
def test_report_writes_one_line_with_fields(
    status: int, level: int, message_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "cordata.http"):
        report(
            status=status,
            method="POST",
            target=b"/x?token=1",
            peer="192.0.2.1",
            reason="why",
            request_id="r1",
        )
    (record,) = caplog.records
    assert record.levelno == level
    assert record.getMessage().startswith("POST /x from 192.0.2.1 ")
    expected = {
        "MESSAGE_ID": message_id,
        "METHOD": "POST",
        "PATH": "/x",
        "STATUS": status,
        "PEER": "192.0.2.1",
        "REASON": "why",
        "REQUEST_ID": "r1",
    }
    assert {key: getattr(record, key) for key in expected} == expected
    assert "token" not in str(record.__dict__)
