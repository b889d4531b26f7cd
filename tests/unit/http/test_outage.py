"""Many requests that are answered 503 are few lines."""

from __future__ import annotations

import logging

import pytest
from tests.unit.http.test_exchange import GET, sending, start
from tests.unit.http.wire import wired

from cordata.config.sections import HttpConfig
from cordata.errors import StoreUnavailable
from cordata.http.asgi import AsgiApp
from cordata.http.outage import Outage


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


def test_first_is_a_line_and_the_rest_a_count(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    firsts = [outage.refused(f"reason {n}", 100.0 + n * 0.01) for n in range(1000)]
    assert firsts == [True] + [False] * 999
    outage.look(112.0 + 2.0)
    assert lines(caplog) == []
    outage.look(115.1)
    assert lines(caplog) == ["no more 503: there were 1000 within 10.0 s"]
    assert outage.refused("again", 120.0)


def test_count_is_told_once_a_minute_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    for second in range(150):
        outage.refused(f"reason {second}", float(second))
        outage.look(second + 0.5)
    assert lines(caplog) == [
        "60 more requests in 60 s were answered 503, the last with: reason 60",
        "60 more requests in 60 s were answered 503, the last with: reason 120",
    ]
    outage.look(155.0)
    assert lines(caplog)[2:] == ["no more 503: there were 150 within 149.0 s"]


def test_single_one_has_no_end_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage()
    assert outage.refused("once", 0.0)
    outage.look(10.0)
    outage.end()
    assert lines(caplog) == []
    assert outage.refused("once", 11.0)


@pytest.mark.parametrize(
    "app",
    [
        sending(error=StoreUnavailable("the server is away")),
        sending(start(503), {"type": "http.response.body", "body": b"later"}),
    ],
)
async def test_requests_that_are_refused_are_one_line(
    app: AsgiApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with wired(app, HttpConfig()) as wire:
        for _ in range(20):
            await wire.feed(GET)
        assert wire.output.count(b"HTTP/1.1 503 ") == 20
        (line,) = lines(caplog)
        assert "failed: 503" in line
        server = wire.connection.server
        server.sweep(server.loop.time() + 6.0)
        assert lines(caplog)[1].startswith("no more 503: there were 20 within")
