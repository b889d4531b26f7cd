"""Anybody can have requests refused, as many as he sends: few of them are lines."""

from __future__ import annotations

import logging
import re

import pytest
from tests.unit.http.test_exchange import GET, body, sending, start
from tests.unit.http.wire import CORPUS_CONFIG, Recorder, connect, serving, wired

from cordata.http.tally import LINES, LINES_PER_S, Tally


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


def test_first_refusals_are_told_and_then_so_many_a_second() -> None:
    tally = Tally()
    assert [tally.is_told(400, 10.0) for _ in range(LINES + 5)] == [True] * LINES + [False] * 5
    later = 10.0 + 3 / LINES_PER_S
    assert [tally.is_told(404, later) for _ in range(5)] == [True] * 3 + [False] * 2
    assert sum(tally.is_told(401, later + 1e6) for _ in range(2 * LINES)) == LINES


@pytest.mark.parametrize("status", [200, 303, 500, 503, 504])
def test_what_is_no_refusal_is_always_told(status: int) -> None:
    tally = Tally()
    assert all(tally.is_told(status, 1.0) for _ in range(2 * LINES))
    assert tally.is_told(400, 1.0)


def test_rest_is_counted_by_status_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    for status in (*[400] * LINES, 404, 499, 404, 501):
        tally.is_told(status, 10.0)
    tally.look(69.9)
    assert lines(caplog) == []
    tally.look(70.0)
    told = "4 more requests in 60 s were refused: 2 x 404, 1 x 499, 1 x 501"
    assert lines(caplog) == [told]
    tally.look(200.0)
    tally.end(200.0)
    assert lines(caplog) == [told]


def test_rest_is_told_when_the_server_ends(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally()
    for _ in range(LINES + 1):
        tally.is_told(404, 10.0)
    tally.end(12.0)
    assert lines(caplog) == ["1 more requests in 2 s were refused: 1 x 404"]


async def test_flood_is_answered_and_hardly_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with wired(sending(start(404), body(b""))) as wire:
        for _ in range(LINES + 50):
            await wire.feed(GET)
        assert wire.output.count(b" 404 ") == LINES + 50
        assert len(lines(caplog)) == LINES
        server = wire.connection.server
        server.sweep(server.loop.time() + 61.0)
        assert re.fullmatch("[0-9]+ more requests .* were refused: [0-9]+ x 404", lines(caplog)[-1])


async def test_flood_of_rubbish_is_hardly_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Recorder(), CORPUS_CONFIG) as server:
        for _ in range(LINES + 50):
            await connect(server).feed(b"rubbish\r\n\r\n")
        assert len(lines(caplog)) == LINES
        assert server.stats().refused == LINES + 50
