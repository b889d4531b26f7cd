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
        (b"/hook/k7GQ2mZt9x.Rw4LpVsYb)/x", "/hook/k7GQ.../x"),
        (b"/hook/%22k7GQ2mZt9xRw4LpVs%0A", "/hook/%22k..."),
        (b"/" + b"x/" * 200, "/" + "x/" * 99 + "x"),
        (b"/nul\0and\nnewline\xff", "/nul?and?newline?"),
    ],
)
def test_path_is_cut_where_secrets_may_be(target: bytes, path: str) -> None:
    assert loggable_path(target) == path


@pytest.mark.parametrize("prefix", ["/api/webhook", "/API//%77ebhook", "http://hub/x/api/webhook"])
@pytest.mark.parametrize("slash", ["/", "%2F", "//"])
@pytest.mark.parametrize(
    "secret", ["short", "word,", "0123\xff", "a%0Ab", "a/b", "0123456789.x) 0"]
)
def test_path_is_cut_by_place_whatever_the_secret_is_made_of(
    prefix: str, slash: str, secret: str
) -> None:
    target = f"{prefix}/wix/DEMO{slash}{secret}?q".encode("latin-1")
    path = loggable_path(target, {"/api/webhook": 2})
    assert path.lower().removeprefix("http:/hub/x") == "/api/webhook/wix/demo/..."
    assert loggable_path(b"/api/webhook/wix/DEMO", {"/api/webhook": 2}) == "/api/webhook/wix/DEMO"
    assert loggable_path(b"/other/1/2/3", {"/api/webhook": 2}) == "/other/1/2/3"
    assert loggable_path(target, {"": 0}).endswith("/...")


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
