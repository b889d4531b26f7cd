"""What a log line may say of a request, and that many requests are few lines."""

from __future__ import annotations

import logging
import re

import pytest
from tests.unit.http.apps import GET, body, sending, start
from tests.unit.http.wire import CORPUS_CONFIG, Recorder, connect, serving, wired

from cordata import events
from cordata.config.sections import HttpConfig
from cordata.errors import StoreUnavailable
from cordata.http.access_log import (
    REFUSAL_LINES,
    REFUSAL_LINES_PER_S,
    AccessLog,
    loggable_path,
)
from cordata.http.asgi import AsgiApp


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
        AccessLog().write(
            status=status,
            method="POST",
            target=b"/x?token=1",
            peer="192.0.2.1",
            reason="why",
            request_id="r1",
            now=0.0,
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


def write(log: AccessLog, status: int, now: float, reason: str = "") -> None:
    log.write(
        status=status,
        method="GET",
        target=b"/x",
        peer="192.0.2.1",
        reason=reason,
        request_id="r1",
        now=now,
    )


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages above INFO since the last call."""
    found = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    caplog.clear()
    return found


def written(caplog: pytest.LogCaptureFixture, log: AccessLog, *statuses: int, now: float) -> int:
    """How many of these requests got a line."""
    for status in statuses:
        write(log, status, now)
    return len(lines(caplog))


# A flood of refused requests


def test_first_refusals_are_lines_and_then_so_many_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = AccessLog()
    assert written(caplog, log, *[400] * (REFUSAL_LINES + 5), now=10.0) == REFUSAL_LINES
    later = 10.0 + 3 / REFUSAL_LINES_PER_S
    assert written(caplog, log, *[404] * 5, now=later) == 3
    assert written(caplog, log, *[401] * 2 * REFUSAL_LINES, now=later + 1e6) == REFUSAL_LINES


@pytest.mark.parametrize("status", [500, 504])
def test_what_is_no_refusal_is_always_a_line(status: int, caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog()
    assert written(caplog, log, *[status] * 2 * REFUSAL_LINES, now=1.0) == 2 * REFUSAL_LINES
    assert written(caplog, log, 400, now=1.0) == 1


def test_other_refusals_are_counted_by_status_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = AccessLog()
    written(caplog, log, *[400] * REFUSAL_LINES, 404, 499, 404, 501, now=10.0)
    log.sweep(69.9)
    assert lines(caplog) == []
    log.sweep(70.0)
    assert lines(caplog) == ["4 more requests in 60 s were refused: 2 x 404, 1 x 499, 1 x 501"]
    log.sweep(200.0)
    log.close(200.0)
    assert lines(caplog) == []


def test_other_refusals_are_logged_when_the_server_ends(caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog()
    written(caplog, log, *[404] * (REFUSAL_LINES + 1), now=10.0)
    log.close(12.0)
    assert lines(caplog) == ["1 more requests in 2 s were refused: 1 x 404"]


async def test_flood_is_answered_and_hardly_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with wired(sending(start(404), body(b""))) as wire:
        for _ in range(REFUSAL_LINES + 50):
            await wire.feed(GET)
        assert wire.output.count(b" 404 ") == REFUSAL_LINES + 50
        assert len(lines(caplog)) == REFUSAL_LINES
        wire.server.sweep(wire.server.state.loop.time() + 61.0)
        assert re.fullmatch("[0-9]+ more requests .* were refused: [0-9]+ x 404", lines(caplog)[-1])


async def test_flood_of_rubbish_is_hardly_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Recorder(), CORPUS_CONFIG) as server:
        for _ in range(REFUSAL_LINES + 50):
            await connect(server).feed(b"rubbish\r\n\r\n")
        assert len(lines(caplog)) == REFUSAL_LINES
        assert server.state.refused == REFUSAL_LINES + 50


async def test_rubbish_is_logged_with_marks_for_what_is_not_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(Recorder(), CORPUS_CONFIG) as server:
        await connect(server).feed(b"\x16\x03\x01 hello\r\n\r\n")
    [line] = lines(caplog)
    assert line.startswith("? - from ")


# Many 503s while the store is unavailable


def test_one_503_a_minute_is_a_line_and_the_rest_a_count(caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog()
    for second in range(100):
        write(log, 503, 100.0 + second, f"reason {second}")
        log.sweep(second + 100.5)
    first, second_, summary = lines(caplog)
    assert "reason 0" in first
    assert "reason 60" in second_
    assert summary == "60 more requests in 60 s failed: 60 x 503"
    log.close(200.0)
    assert lines(caplog)[-1] == "38 more requests in 38 s failed: 38 x 503"


def test_single_503_has_no_summary(caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog()
    assert written(caplog, log, 503, now=100.0) == 1
    log.sweep(170.0)
    log.close(170.0)
    assert lines(caplog) == []


@pytest.mark.parametrize(
    "app",
    [
        sending(error=StoreUnavailable("the server is away")),
        sending(start(503), {"type": "http.response.body", "body": b"later"}),
    ],
)
async def test_requests_that_get_503_are_one_line(
    app: AsgiApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with wired(app, HttpConfig()) as wire:
        for _ in range(20):
            await wire.feed(GET)
        assert wire.output.count(b"HTTP/1.1 503 ") == 20
        (line,) = lines(caplog)
        assert "failed: 503" in line
        wire.server.sweep(wire.server.state.loop.time() + 61.0)
        assert lines(caplog)[0].endswith("failed: 19 x 503")
