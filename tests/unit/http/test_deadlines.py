"""Limits in time and size; the sweep gets the moment passed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.http.apps import GET, POST, body, http_only, sending, start
from tests.unit.http.wire import PEER, Recorder, Wire, answers_of, still, wired

from cordata.config.sections import HttpConfig
from cordata.http.asgi import Receive, Scope, Send

CONFIG = HttpConfig(
    first_byte_timeout_s=1, header_timeout_s=2, body_timeout_s=3, response_timeout_s=4
)


def later(wire: Wire, seconds: float) -> None:
    """The sweep at a moment in the future."""
    wire.server.sweep(wire.server.state.loop.time() + seconds)


async def expire(wire: Wire, seconds: float) -> list[int]:
    """Nothing happens just before `seconds`, then the deadline bites. Returns the statuses."""
    later(wire, seconds - 0.2)
    await wire.settle()
    assert not wire.transport.ended
    later(wire, seconds + 0.2)
    await wire.settle()
    assert wire.transport.ended
    return [answer.status for answer in answers_of(wire)]


async def test_silent_connection_is_closed_without_a_word() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        assert await expire(wire, 1) == []


async def test_idle_connection_is_closed_without_a_word() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        await wire.feed(GET)
        assert await expire(wire, 1) == [200]


async def test_connection_is_closed_without_a_word_when_only_an_empty_line_came() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        await wire.feed(b"\r\n")
        assert await expire(wire, 2) == []


async def test_slow_header_is_408_however_steadily_it_comes() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        await wire.feed(*(GET[i : i + 1] for i in range(len(GET) - 1)))
        assert await expire(wire, 2) == [408]


async def test_silence_within_a_body_is_408() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        await wire.feed(POST % 4, b"ab")
        assert await expire(wire, 3) == [408]


async def test_slow_body_is_408_however_steadily_it_trickles() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        loop = still(wire.server)
        await wire.feed(POST % 5000)
        for _ in range(2):  # what comes fast buys time for what comes slowly
            loop.seconds += 2
            await wire.feed(b"a" * 1024)
            wire.server.sweep(loop.time())
            assert not wire.transport.ended
        for _ in range(4):
            loop.seconds += 1
            await wire.feed(b"a")
            wire.server.sweep(loop.time())
        assert wire.transport.ended
        assert [answer.status for answer in answers_of(wire)] == [408]


async def test_missing_response_is_504_and_the_application_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with wired(http_only(handle), CONFIG) as wire:
        await wire.feed(GET)
        assert await expire(wire, 4) == [504]
        assert cancelled.is_set() and wire.server.state.in_flight == 0


async def test_body_that_the_application_does_not_take_is_504_not_408() -> None:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async with wired(http_only(handle), CONFIG) as wire:
        await wire.feed(POST % 200_000, b"x" * 100_000)
        assert await expire(wire, 4) == [504]


async def test_started_stream_may_be_silent_as_long_as_it_likes() -> None:
    end = asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"a", more=True))
        await end.wait()
        await send(body(b"b"))

    async with wired(http_only(handle), CONFIG) as wire:
        await wire.feed(GET)
        later(wire, 1000)
        end.set()
        await wire.settle()
        assert answers_of(wire)[0].body == b"ab"


async def test_client_that_does_not_read_is_cut_off() -> None:
    async with wired(sending(start(), body(b"x" * 100)), CONFIG) as wire:
        await wire.feed(GET)
        wire.transport.unsent = 100
        later(wire, 0.0)
        later(wire, 0.9)
        assert not wire.transport.closing
    paused = asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await paused.wait()
        await sending(start(), body(b"x" * 100, more=True), body())(scope, receive, send)

    async with wired(http_only(handle), CONFIG) as wire:
        wire.connection.data_received(GET)
        wire.connection.pause_writing()
        paused.set()
        await wire.settle()
        for unsent, seconds in ((100, 1), (90, 4), (90, 7)):
            wire.transport.unsent = unsent
            later(wire, seconds)
            assert not wire.transport.closing  # it read some
        later(wire, 8.5)
        assert wire.transport.closing


async def test_application_is_cancelled_when_it_does_not_notice_that_its_client_left() -> None:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async with wired(http_only(handle), CONFIG) as wire:
        await wire.feed(GET)
        wire.transport.close()
        await wire.settle()
        later(wire, 3.8)
        await wire.settle()
        assert wire.server.state.in_flight == 1
        later(wire, 4.2)
        await wire.settle()
        assert wire.server.state.in_flight == 0


async def test_application_is_cancelled_when_it_does_not_notice_that_it_was_refused_at_once() -> (
    None
):
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async with wired(http_only(handle), CONFIG) as wire:
        wire.connection.data_received(POST % 9 + b"abc")
        wire.connection.eof_received()
        await wire.settle()
        later(wire, 3.8)
        await wire.settle()
        assert wire.server.state.in_flight == 1
        later(wire, 4.2)
        await wire.settle()
        assert wire.server.state.in_flight == 0


async def test_lingering_connection_is_closed_in_the_end() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        await wire.feed(b"GET / HTTP/1.1\r\n\r\n")
        assert wire.transport.eof_written and not wire.transport.closing
        await wire.feed(b"more and more")  # dropped
        later(wire, 2.5)
        assert wire.transport.closing


async def test_lingering_connection_stays_as_long_as_its_client_reads() -> None:
    last = sending(start(200, (b"connection", b"close")), body(b"x" * 250_000))
    async with wired(last, CONFIG) as wire:
        loop = still(wire.server)
        await wire.feed(GET)
        assert wire.transport.eof_written
        for unsent in range(250_000, 0, -50_000):
            wire.transport.unsent = unsent
            loop.seconds += 1.0
            wire.server.sweep(loop.time())
            assert not wire.transport.closing
            assert wire.connection.eviction_key(loop.time()) is None
        wire.transport.unsent = 0
        loop.seconds += 0.5
        wire.server.sweep(loop.time())
        assert not wire.transport.closing
        loop.seconds += 1.5
        wire.server.sweep(loop.time())
        assert wire.transport.closing


@pytest.mark.parametrize("headers", [(), ((b"connection", b"close"),)])
async def test_client_that_reads_nothing_of_a_whole_response_does_not_hold_up_the_drain(
    headers: tuple[tuple[bytes, bytes], ...],
) -> None:
    async with wired(sending(start(200, *headers), body(b"x" * 250_000)), HttpConfig()) as wire:
        loop = still(wire.server)
        await wire.feed(GET)
        wire.server.state.draining = True
        for unsent, seconds, closing in (
            (200_000, 9, False),
            (100_000, 9, False),
            (100_000, 11, True),
        ):
            wire.transport.unsent = unsent
            wire.server.sweep(loop.time())
            loop.seconds += seconds
            wire.server.sweep(loop.time())
            assert wire.transport.closing is closing


async def test_client_that_is_still_sending_gets_time_to_read_its_refusal() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        loop = still(wire.server)
        await wire.feed(POST % 99_999_999)
        for _ in range(2):
            loop.seconds += 1.4
            await wire.feed(b"more and more")
            wire.server.sweep(loop.time())
            assert not wire.transport.closing
        loop.seconds += 0.4  # body_timeout_s is over
        wire.server.sweep(loop.time())
        assert wire.transport.closing


async def test_body_above_the_limit_is_413_when_streamed() -> None:
    app = Recorder()
    async with wired(app, HttpConfig(max_body_bytes=10)) as wire:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        await wire.feed(head, b"8\r\n12345678\r\n", b"8\r\n")
        assert [answer.status for answer in answers_of(wire)] == [413]
        assert wire.transport.ended and app.seen == []


async def test_refused_body_cuts_a_response_that_has_begun() -> None:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"a", more=True))
        while (await receive())["type"] == "http.request":
            pass

    async with wired(http_only(handle), HttpConfig(max_body_bytes=10)) as wire:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        await wire.feed(head, b"8\r\n12345678\r\n", b"8\r\n")
        assert wire.transport.closing and wire.output.endswith(b"a\r\n")


@pytest.mark.parametrize(
    ("pieces", "statuses"),
    [
        ((), []),
        ((b"\r\n",), []),
        ((b"\r",), []),
        ((GET, b"\r\n"), [200]),
        ((b"\r\nG",), [400]),
        ((b"GET / HT",), [400]),
        ((POST % 4 + b"ab",), [400]),
        ((GET,), [200]),
    ],
)
async def test_end_of_the_clients_side_ends_the_connection(
    pieces: tuple[bytes, ...], statuses: list[int]
) -> None:
    async with wired(Recorder(), CONFIG) as wire:
        await wire.feed(*pieces)
        if not wire.connection.eof_received():
            wire.transport.close()
        await wire.settle()
        assert [answer.status for answer in answers_of(wire)] == statuses
        assert wire.transport.closing


async def test_new_limits_hold_for_open_connections_when_reloaded() -> None:
    async with wired(Recorder(), HttpConfig()) as wire:
        await wire.feed(POST % 5 + b"hello")
        wire.server.reload(HttpConfig(max_body_bytes=4))
        await wire.feed(POST % 5)
        assert [answer.status for answer in answers_of(wire)] == [200, 413]


async def test_trust_in_the_peer_of_an_open_connection_changes_when_reloaded() -> None:
    app, request = Recorder(), b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n"
    async with wired(app, HttpConfig()) as wire:
        await wire.feed(request)
        wire.server.reload(HttpConfig(trusted_proxies=("192.0.2.0/24",)))
        await wire.feed(request)
        wire.server.reload(HttpConfig())
        await wire.feed(request)
    clients = [seen.scope["client"] for seen in app.seen]
    assert clients == [PEER.client, ("203.0.113.7", 0), PEER.client]


async def test_proxy_is_believed_when_its_request_has_no_other_field() -> None:
    """In HTTP/1.0 not even Host is needed."""
    app = Recorder()
    async with wired(app, HttpConfig(trusted_proxies=("192.0.2.0/24",))) as wire:
        await wire.feed(b"GET / HTTP/1.0\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n")
    assert [seen.scope["client"] for seen in app.seen] == [("203.0.113.7", 0)]


@pytest.mark.parametrize(
    "data",
    [b"\0", b"GET / HTTP/1.1\r\n\r\n", POST % 99_999_999, b"FROB / HTTP/1.1\r\nHost: a\r\n\r\n"],
)
async def test_refused_request_has_exactly_one_line(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "cordata.http"):
        async with wired(Recorder(), CONFIG) as wire:
            await wire.feed(data, data)
            later(wire, 100)
    (record,) = caplog.records
    fields: dict[str, Any] = record.__dict__
    assert fields["PEER"] == "192.0.2.1" and fields["STATUS"] >= 400 and fields["REASON"]
    assert len(fields["REQUEST_ID"]) == 32


async def test_sweep_passes_by_when_a_connection_has_no_transport_yet() -> None:
    async with wired(Recorder(), CONFIG) as wire:
        connection = wire.server.new_connection(PEER)
        later(wire, 0)
        connection.connection_lost(None)


@pytest.mark.parametrize(
    ("fields", "request_id"),
    [
        (b"X-Request-ID: r.1\r\n", "r.1"),
        (b"Bad Line\r\nx-request-id:r.1\r\n", "r.1"),
        (b"X-Request-ID: r 1\r\n", None),
        (b"X-Request-ID: r1\r\nX-Request-ID: r2\r\n", None),
        (b"\r\nX-Request-ID: r1\r\n", None),
    ],
)
async def test_refused_request_keeps_its_id(fields: bytes, request_id: str | None) -> None:
    async with wired(Recorder(), CONFIG) as wire:
        await wire.feed(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n" + fields + b"\r\n")
        found = answers_of(wire)[0].headers["x-request-id"]
        assert found == request_id if request_id is not None else len(found) == 32
