"""How requests end: responses of every kind, failures, and what the application is told."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.unit.http.apps import GET, POST, body, http_only, sending, start
from tests.unit.http.wire import Answer, answers_of, connect, serving, wired

from cordata import events
from cordata.config.sections import HttpConfig
from cordata.errors import StoreUnavailable, Unclear
from cordata.http import HttpServer
from cordata.http.asgi import AsgiApp, ClientGone, Receive, Scope, Send
from cordata.log import request_id

CONFIG = HttpConfig(max_body_bytes=1000)
HEAD = GET.replace(b"GET", b"HEAD")


async def ask(app: AsgiApp, request: bytes = GET, method: str = "GET") -> tuple[Answer, bool]:
    """The one answer, and whether the connection ended with it."""
    async with wired(app, CONFIG) as wire:
        await wire.feed(request)
        (answer,) = answers_of(wire, method)
        return answer, wire.transport.ended


async def test_whole_response_gets_a_length() -> None:
    answer, ended = await ask(sending(start(), body(b"hello")))
    assert (answer.status, answer.body, ended) == (200, b"hello", False)
    assert answer.headers["content-length"] == "5"
    assert answer.headers["x-request-id"] == "r1"


async def test_streamed_response_is_chunked() -> None:
    parts = [body(b"a", more=True), body(b"", more=True), body(b"bc", more=True), body()]
    answer, ended = await ask(sending(start(), *parts))
    assert (answer.body, ended) == (b"abc", False)
    assert answer.headers["transfer-encoding"] == "chunked"


async def test_streamed_response_keeps_its_declared_length() -> None:
    parts = [body(b"a", more=True), body(b"bc")]
    answer, _ = await ask(sending(start(200, (b"content-length", b"3")), *parts))
    assert answer.body == b"abc" and "transfer-encoding" not in answer.headers


async def test_streamed_response_ends_with_the_connection_when_http10() -> None:
    app = sending(start(), body(b"a", more=True), body(b"b"))
    answer, ended = await ask(app, b"GET / HTTP/1.0\r\n\r\n")
    assert (answer.body, ended) == (b"ab", True)


async def test_head_gets_no_body() -> None:
    answer, ended = await ask(sending(start(), body(b"hello")), HEAD, "HEAD")
    assert (answer.headers["content-length"], ended) == ("5", False)
    stream = sending(start(), body(b"a", more=True), body(b"b"))
    answer, ended = await ask(stream, HEAD, "HEAD")
    assert ended is False


@pytest.mark.parametrize("status", [204, 304])
async def test_bodyless_status_gets_no_body(status: int) -> None:
    answer, ended = await ask(sending(start(status), body(b"unwanted")))
    assert (answer.status, ended) == (status, False)


async def test_error_is_500_and_the_connection_lives() -> None:
    answer, ended = await ask(sending(error=ValueError("boom")))
    assert (answer.status, ended) == (500, False)
    assert b"boom" not in answer.body and b"r1" in answer.body


async def test_error_after_start_is_500_too() -> None:
    answer, _ = await ask(sending(start(200), error=ValueError("boom")))
    assert answer.status == 500


async def test_500_of_a_framework_is_kept_when_it_raises_after() -> None:
    answer, ended = await ask(sending(start(500), body(b"mine"), error=ValueError("boom")))
    assert (answer.status, answer.body, ended) == (500, b"mine", False)


async def test_500_of_the_application_is_sent_when_it_returns() -> None:
    answer, _ = await ask(sending(start(500), body(b"mine")))
    assert (answer.status, answer.body) == (500, b"mine")


@pytest.mark.parametrize("messages", [(), (start(500), body(b"Internal Server Error"))])
async def test_unavailable_store_is_503_with_retry_after(messages: Any) -> None:
    app = sending(*messages, error=StoreUnavailable(retry_after_s=2.5))
    answer, ended = await ask(app)
    assert (answer.status, answer.headers["retry-after"], ended) == (503, "3", False)
    assert b'"store_unavailable"' in answer.body


async def test_503_says_that_nobody_knows_when_the_outcome_of_a_commit_is_unclear() -> None:
    answer, _ = await ask(sending(error=Unclear(retry_after_s=2.5)))
    assert (answer.status, answer.headers["retry-after"]) == (503, "3")
    assert b'"unclear"' in answer.body and b"not known" in answer.body


async def test_connection_is_cut_when_the_application_fails_within_its_response() -> None:
    async with wired(sending(start(), body(b"a", more=True), error=ValueError()), CONFIG) as wire:
        await wire.feed(GET)
        assert wire.transport.closing
        assert wire.output.endswith(b"1\r\na\r\n")


@pytest.mark.parametrize(
    "messages",
    [
        (start(200, (b"content-length", b"5")), body(b"four")),
        (start(200, (b"content-length", b"3")), body(b"four")),
        (start(200, (b"x", b"a\r\nb: c")), body()),
        (start(99), body()),
        (start(), start(), body()),
        (body(b"early"),),
        (start(),),
        (),
        ({"type": "http.response.trailers"},),
        (start(), {"type": "http.response.body", "body": "text"}),
    ],
)
async def test_misuse_is_500_before_anything_is_written(messages: Any) -> None:
    answer, ended = await ask(sending(*messages))
    assert (answer.status, ended) == (500, False)


@pytest.mark.parametrize("second", [b"too much", b"-"])
async def test_connection_is_cut_when_a_stream_breaks_its_length(second: bytes) -> None:
    app = sending(start(200, (b"content-length", b"4")), body(b"ab", more=True), body(second))
    async with wired(app, CONFIG) as wire:
        await wire.feed(GET)
        assert wire.transport.closing
        assert len(wire.output.partition(b"\r\n\r\n")[2]) < 4


async def test_background_work_runs_after_the_response() -> None:
    done = asyncio.Event()
    release = asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"ok"))
        await release.wait()
        done.set()

    async with wired(http_only(handle), CONFIG) as wire:
        await wire.feed(GET, GET)  # the next request does not wait for it
        assert len(answers_of(wire)) == 2
        assert wire.server.state.in_flight == 2
        release.set()
        await wire.settle()
    assert done.is_set()


async def test_receive_says_disconnect_after_the_response_and_when_the_client_left() -> None:
    got: list[str] = []

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        got.append((await receive())["type"])
        got.append((await receive())["type"])
        if scope["path"] == "/x":
            await send(start())
            await send(body())
            got.append((await receive())["type"])

    async with wired(http_only(handle), CONFIG) as wire:
        await wire.feed(GET)
        assert got == ["http.request"]
        wire.connection.eof_received()
        await wire.settle()
        assert got == ["http.request", "http.disconnect", "http.disconnect"]
        assert answers_of(wire)[0].status == 200  # a half-closed client still reads
        assert wire.transport.closing


async def test_stream_is_told_that_its_client_left_and_a_last_message_is_not() -> None:
    got: list[str] = []
    gone = asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        if scope["path"] == "/stream":
            await send(body(b"a", more=True))
        await gone.wait()
        try:
            await send(body(b"b", more=scope["path"] == "/stream"))
        except ClientGone:
            got.append("gone")
        got.append("after")

    for path, expected in ((b"/stream", ["gone", "after"]), (b"/x", ["after"])):
        got.clear()
        gone.clear()
        async with wired(http_only(handle), CONFIG) as wire:
            await wire.feed(GET.replace(b"/x?q=1", path))
            wire.transport.close()
            await wire.settle()
            gone.set()
            await wire.settle()
        assert got == expected


async def test_continue_is_sent_when_the_application_asks_for_the_body() -> None:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        await send(start())
        await send(body(message["body"]))

    request = (POST % 2).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    async with wired(http_only(handle), CONFIG) as wire:
        await wire.feed(request)
        assert wire.output == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.feed(b"hi")
        (answer,) = answers_of(wire)
        assert answer.body == b"hi" and not wire.transport.ended


async def test_continue_is_not_sent_when_the_application_refuses_first() -> None:
    request = (POST % 2).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    answer, ended = await ask(sending(start(403), body()), request)
    # The client may or may not send its body now: only the end of the connection is safe.
    assert (answer.status, answer.headers["connection"], ended) == (403, "close", True)


async def test_rest_of_a_body_is_dropped_when_the_answer_came_first() -> None:
    async with wired(sending(start(), body(b"early")), CONFIG) as wire:
        await wire.feed(POST % 4 + b"ab")
        assert len(answers_of(wire)) == 1
        await wire.feed(b"cd" + GET)
        assert [a.status for a in answers_of(wire)] == [200, 200]


async def test_rest_of_a_body_is_dropped_when_much_of_it_waited() -> None:
    answer = asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await answer.wait()
        await send(start())
        await send(body(b"early"))

    async with wired(http_only(handle), HttpConfig(max_body_bytes=1_000_000)) as wire:
        await wire.feed(POST % 300_000, b"x" * 100_000)
        assert not wire.transport.reading
        answer.set()
        await wire.settle()
        assert wire.transport.reading
        await wire.feed(b"x" * 100_000, b"x" * 100_000, GET)
        assert wire.transport.reading
        assert [one.status for one in answers_of(wire)] == [200, 200]


CHUNKED = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "request_", [CHUNKED + b"1\r\nx\r\n", POST % 500_000 + b"x"], ids=["chunked", "large"]
)
async def test_early_answer_closes_when_much_of_the_body_may_follow(request_: bytes) -> None:
    async with wired(sending(start(401), body(b"no")), HttpConfig()) as wire:
        await wire.feed(request_)
        (answer,) = answers_of(wire)
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        await wire.feed(b"1\r\nx\r\n" * 1000, GET)  # dropped
        assert wire.transport.ended and len(answers_of(wire)) == 1


async def test_application_is_told_when_the_body_is_refused_in_the_turn_of_the_head() -> None:
    told: list[str] = []

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        told.append((await receive())["type"])

    async with wired(http_only(handle), CONFIG) as wire:
        wire.connection.data_received(CHUNKED + b"5\r\nhello\r\n")
        await wire.feed(b"no size\r\n")
        (answer,) = answers_of(wire, "POST")
        assert (answer.status, wire.transport.ended, told) == (400, True, ["http.disconnect"])


async def test_application_is_not_called_when_the_server_is_cancelled_in_the_turn_of_the_head() -> (
    None
):
    called: list[str] = []

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        called.append(scope["path"])

    server = HttpServer(http_only(handle), [], CONFIG)
    run = asyncio.ensure_future(server.run(asyncio.Event()))
    await server.ready.wait()
    wire = connect(server)
    run.cancel()
    await wire.feed(GET)
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (called, wire.transport.ended) == ([], True)


async def test_request_is_answered_while_tiny_chunks_of_others_are_decoded() -> None:
    """Turns of the event loop are counted: each decodes some of what is here."""
    sizes: dict[str, int] = {}

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        more, size = True, 0
        while more:
            message = await receive()
            more = message["more_body"]
            size += len(message["body"])
            sizes[scope["method"]] = size
        await send(start())
        await send(body())

    async with serving(http_only(handle), HttpConfig()) as server:
        slow = [connect(server) for _ in range(50)]
        for wire in slow:
            wire.connection.data_received(CHUNKED + b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n")
        quick = connect(server)
        quick.connection.data_received(GET)
        for _ in range(5):
            await asyncio.sleep(0)
        assert answers_of(quick)[0].status == 200
        assert sizes["POST"] < 2000
        for wire in slow:
            while not wire.output:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert answers_of(wire)[0].status == 200 and wire.transport.reading
        assert sizes["POST"] == 10_000


async def test_tiny_chunks_wait_while_the_application_does_not_take_them() -> None:
    take, taken = asyncio.Event(), 0

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal taken
        await take.wait()
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            taken += len(message["body"])
        await send(start())
        await send(body())

    async with wired(http_only(handle), HttpConfig()) as wire:
        data = CHUNKED + b"400\r\n%b\r\n" % (b"x" * 1024) * 400
        wire.connection.data_received(data)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not wire.transport.reading and not wire.output
        take.set()
        await wire.settle()
        while not wire.transport.reading:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await wire.feed(b"0\r\n\r\n")
        assert answers_of(wire)[0].status == 200 and taken == 400 * 1024


async def test_reading_stops_while_the_application_does_not_take_the_body() -> None:
    take = asyncio.Event()
    taken = 0

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal taken
        await take.wait()
        while (message := await receive())["more_body"]:
            taken += len(message["body"])
        await send(start())
        await send(body())

    config = HttpConfig(max_body_bytes=1_000_000)
    async with wired(http_only(handle), config) as wire:
        await wire.feed(POST % 200_000, b"x" * 60_000)
        assert wire.transport.reading
        await wire.feed(b"x" * 60_000)
        assert not wire.transport.reading
        take.set()
        await wire.settle()
        assert wire.transport.reading and taken == 120_000
        await wire.feed(b"x" * 80_000)
        assert answers_of(wire)[0].status == 200


async def test_reading_stops_when_too_much_is_pipelined() -> None:
    release = asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        await send(start())
        await send(body())

    async with wired(http_only(handle), CONFIG) as wire:
        get = GET.replace(b"?q=1", b"?q=" + b"1" * 50)
        await wire.feed(get * 450, get * 450)
        assert not wire.transport.reading
        release.set()
        for _ in range(900):
            await wire.settle()
            if len(wire.output) and wire.output.count(b"HTTP/1.1 200") == 900:
                break
        assert wire.output.count(b"HTTP/1.1 200") == 900
        assert wire.transport.reading


async def test_connection_closes_after_many_pipelined_requests() -> None:
    async with wired(sending(start(), body(b"x")), CONFIG) as wire:
        await wire.feed(GET * 1010)
        answers = answers_of(wire)
        assert len(answers) == 1001 and wire.transport.ended
        assert [one.headers.get("connection") for one in answers[-2:]] == [None, "close"]


async def test_connection_closes_after_fewer_pipelined_requests_when_there_are_too_many() -> None:
    async with serving(sending(start(), body(b"x")), HttpConfig(max_connections=1)) as server:
        wire = connect(server)
        await wire.feed(*[GET * 10] * 5)  # with a pause after each ten
        assert len(answers_of(wire)) == 50 and not wire.transport.ended
        await wire.feed(GET * 50)
        assert len(answers_of(wire)) == 67 and wire.transport.ended


async def test_requests_of_a_client_that_does_not_read_wait_within_bounds() -> None:
    """Each arrives by itself: none may be answered on top of what is unread."""
    async with wired(sending(start(), body(b"x")), CONFIG) as wire:
        await wire.feed(GET)
        wire.connection.pause_writing()
        sent = 0
        while wire.transport.reading and sent < 3000:
            await wire.feed(GET)
            sent += 1
        assert len(answers_of(wire)) == 1
        assert sent * len(GET) < 100_000


async def test_stream_waits_while_the_client_does_not_read() -> None:
    sent, paused = 0, asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await paused.wait()
        await send(start())
        for _ in range(5):
            await send(body(b"x", more=True))
            sent += 1
        await send(body())

    async with wired(http_only(handle), CONFIG) as wire:
        wire.connection.data_received(GET + GET)
        wire.connection.pause_writing()
        paused.set()
        await wire.settle()
        assert sent == 0 and wire.output.endswith(b"x\r\n")
        wire.connection.resume_writing()
        await wire.settle()
        assert sent == 10


async def test_next_request_waits_while_the_client_does_not_read() -> None:
    async with wired(sending(start(), body(b"x")), CONFIG) as wire:
        wire.connection.data_received(GET + GET)
        wire.connection.pause_writing()
        await wire.settle()
        assert len(answers_of(wire)) == 1
        wire.connection.resume_writing()
        await wire.settle()
        assert len(answers_of(wire)) == 2


async def test_request_id_is_in_context_log_and_state(caplog: pytest.LogCaptureFixture) -> None:
    ids: list[str] = []

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        ids.append(request_id.get())
        scope["state"]["reason"] = "the secret is wrong"
        await send(start(401))
        await send(body())

    with caplog.at_level(logging.INFO, "cordata.http"):
        answer, _ = await ask(http_only(handle))
    (record,) = caplog.records
    assert ids == ["r1"] and answer.headers["x-request-id"] == "r1"
    assert record.__dict__["REQUEST_ID"] == "r1"
    assert record.__dict__["REASON"] == "the secret is wrong"
    assert record.__dict__["MESSAGE_ID"] == events.REQUEST_REFUSED
    assert "q=1" not in record.getMessage()


@pytest.mark.parametrize("given", [b"a b", b"x" * 65, b"", b"a\xe9", b"a, b", b"<script>"])
async def test_request_id_is_made_when_the_given_one_is_not_safe(given: bytes) -> None:
    request = b"GET / HTTP/1.1\r\nHost: a\r\nX-Request-ID: " + given + b"\r\n\r\n"
    answer, _ = await ask(sending(start(), body()), request)
    assert len(answer.headers["x-request-id"]) == 32


@pytest.mark.parametrize(("access_log", "lines"), [(False, 0), (True, 1)])
async def test_accepted_request_has_a_line_when_access_log(
    access_log: bool, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "cordata.http"):
        async with wired(sending(start(), body()), HttpConfig(access_log=access_log)) as wire:
            await wire.feed(GET)
    assert len(caplog.records) == lines


@pytest.mark.parametrize(
    "app",
    [
        sending(start(404), body()),
        sending(error=ValueError()),
        sending(start(500), body(), error=ValueError()),
        sending(error=StoreUnavailable()),
        sending(start(), body(b"a", more=True), error=ValueError()),
        sending(start(), body(), error=ValueError()),
        sending(),
    ],
)
async def test_failed_request_has_exactly_one_line(
    app: AsgiApp, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "cordata.http"):
        async with wired(app, CONFIG) as wire:
            await wire.feed(GET)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseExceptionGroup("", [SystemExit(3)])],
    ids=lambda error: type(error).__name__,
)
async def test_request_alone_fails_when_its_application_raises_anything(
    error: BaseException,
) -> None:
    async with wired(sending(error=error), CONFIG) as wire:
        await wire.feed(GET)
        await wire.feed(GET)
        assert [answer.status for answer in answers_of(wire, "GET", "GET")] == [500, 500]


@pytest.mark.parametrize("failing", [True, False])
async def test_application_may_change_its_scope(
    failing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        scope.clear()
        if failing:
            raise ValueError
        await send(start(404))
        await send(body(b"x"))

    answer, _ = await ask(http_only(handle))
    assert answer.status == (500 if failing else 404)
    (record,) = caplog.records
    assert record.__dict__["PATH"] == "/x" and record.__dict__["PEER"] == "192.0.2.1"


@pytest.mark.parametrize("answers", [True, False])
async def test_request_has_one_line_when_its_client_left(
    answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    gone = asyncio.Event()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        await gone.wait()
        if not answers:
            raise ValueError
        await send(start())
        await send(body(b"x"))

    with caplog.at_level(logging.INFO, "cordata.http"):
        async with wired(http_only(handle), CONFIG) as wire:
            await wire.feed(GET)
            wire.transport.close()
            await wire.settle()
            gone.set()
            await wire.settle()
    (record,) = caplog.records
    assert record.__dict__["STATUS"] == 499 and record.levelno == logging.INFO
