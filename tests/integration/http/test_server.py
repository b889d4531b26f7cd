"""The server on real sockets: accepting, limits, draining, clients that misbehave."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import re
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.integration.http.live import Live, listening, live, read_head
from tests.unit.http.apps import GET, POST, body, http_only, sending, start
from tests.unit.http.corpus import load
from tests.unit.http.wire import CORPUS_CONFIG, Recorder, parse_answers
from tests.waiting import until_async

from cordata import clock, trace
from cordata.config.sections import HttpConfig
from cordata.http import HttpServer
from cordata.http.accept import Acceptor
from cordata.http.asgi import DISCONNECT, AsgiApp, Receive, Scope, Send
from cordata.http.connection import Connection
from cordata.http.exchange import Exchange
from cordata.metrics.file import MetricsFile
from cordata.metrics.process import HttpMetrics
from cordata.metrics.series import CODES, REQUESTS, http_series

CLOSE = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
CHUNKED = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
QUICK = HttpConfig(
    first_byte_timeout_s=0.3,
    header_timeout_s=0.3,
    body_timeout_s=0.3,
    response_timeout_s=0.3,
    drain_s=0,
)


async def test_corpus_is_answered_the_same_over_sockets() -> None:
    app = Recorder()
    async with live(app, CORPUS_CONFIG) as server:
        for case in load("valid") + load("invalid"):
            app.seen.clear()
            reader, writer = await server.connect()
            writer.write(case.data)
            if case.is_valid and not case.expected["closes"]:
                writer.write(CLOSE)
            async with asyncio.timeout(60):
                output = await reader.read()
            writer.close()
            methods = [one.scope["method"] for one in app.seen]
            statuses = [a.status for a in parse_answers(output, methods, ended=True)]
            expected = [200] * len(case.expected["requests"])
            if not case.is_valid:
                expected.append(case.expected["status"])
            elif not case.expected["closes"]:
                expected.append(200)
            assert statuses == expected, case.name


async def test_several_sockets_are_served_at_once(tmp_path: Path) -> None:
    app = Recorder()
    async with live(app, unix=tmp_path / "s") as server:
        assert (await server.talk(CLOSE))[0].status == 200
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(CLOSE)
        assert parse_answers(await reader.read(), [], ended=True)[0].status == 200
        writer.close()
        own = ("127.0.0.1", server.port)
    tcp, unix = (one.scope for one in app.seen)
    assert tcp["client"][0] == "127.0.0.1" and tcp["server"] == own
    assert unix["client"] is None and unix["server"] == (str(tmp_path / "s"), None)


async def test_forwarded_headers_are_believed_from_the_unix_socket_only(tmp_path: Path) -> None:
    app = Recorder()
    request = CLOSE.replace(
        b"Connection",
        b"X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n"
        b"X-Forwarded-Host: hub.example\r\nConnection",
    )
    async with live(app, unix=tmp_path / "s") as server:
        await server.talk(request)
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(request)
        await reader.read()
        writer.close()
    tcp, unix = (one.scope for one in app.seen)
    assert (tcp["client"][0], tcp["scheme"]) == ("127.0.0.1", "http")
    assert (b"host", b"a") in tcp["headers"]
    assert (unix["client"], unix["scheme"]) == (("203.0.113.7", 0), "https")
    assert (b"host", b"hub.example") in unix["headers"]


async def test_connections_above_the_limit_wait_in_the_kernels_queue() -> None:
    async with live(Recorder(), HttpConfig(max_connections=2, drain_s=0)) as server:
        streams = [await server.connect() for _ in range(3)]
        for _, writer in streams:
            writer.write(GET)
        for reader, _ in streams[:2]:
            await read_head(reader)
        third, _ = streams[2]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await third.readexactly(1)
        assert server.server.state.connection_count == 2
        streams[0][1].close()
        assert b"200 OK" in await read_head(third)
        for _, writer in streams:
            writer.close()


async def test_silent_connections_give_way_when_there_are_too_many() -> None:
    """Their own deadlines are half a minute away, and they come again at once."""
    async with live(Recorder(), HttpConfig(max_connections=4, drain_s=0)) as server:
        silent = [await server.connect() for _ in range(4)]
        slow = [await server.connect() for _ in range(4)]
        for _, writer in slow:
            writer.write(GET[:9])
        assert (await server.talk(CLOSE))[0].status == 200
        for _, writer in silent + slow:
            writer.close()


async def test_listen_queue_is_never_shrunk() -> None:
    async with live(Recorder()) as server:
        await server.talk(CLOSE)
        tcp_info = struct.unpack("8B24I", server.sockets[0].getsockopt(6, 11, 104))
        assert tcp_info[8 + 5] == 256  # tcpi_sacked of a listening socket is its backlog


class Failing(socket.socket):
    """A listening socket whose first accepts fail."""

    errors: ClassVar[list[int]] = []

    def accept(self) -> tuple[socket.socket, Any]:
        if self.errors:
            raise OSError(self.errors.pop(0), "on purpose")
        return super().accept()


async def test_accepting_goes_on_after_errors(caplog: pytest.LogCaptureFixture) -> None:
    with listening() as sockets:
        failing = Failing(fileno=os.dup(sockets[0].fileno()))
        Failing.errors = [errno.ECONNABORTED, errno.EMFILE, errno.ENFILE]
        taken: asyncio.Queue[socket.socket] = asyncio.Queue()
        acceptor = Acceptor(
            [failing], take=taken.put_nowait, is_full=lambda: False, make_room=lambda: None
        )
        acceptor.open()
        began = asyncio.get_running_loop().time()
        with socket.create_connection(sockets[0].getsockname()):
            async with asyncio.timeout(60):
                (await taken.get()).close()
        # Twice out of descriptors: twice a pause, not a busy loop; each is told.
        assert asyncio.get_running_loop().time() - began > 0.9
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
        acceptor.close()
        failing.close()


@pytest.mark.parametrize(
    ("pieces", "statuses"),
    [
        ((), []),
        ((b"GET / HTTP/1.1\r\nHo",), [408]),
        ((b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",), [408]),
        ((b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",), [200]),
    ],
)
async def test_silent_client_is_ended_in_time(
    pieces: tuple[bytes, ...], statuses: list[int]
) -> None:
    async with live(Recorder(), QUICK) as server, asyncio.timeout(60):
        assert [answer.status for answer in await server.talk(*pieces)] == statuses
        await server.quiet()


class Exported:
    """Takes the place of OpenTelemetry: the status and the error of each span."""

    def __init__(self) -> None:
        self.spans: list[tuple[str | int, str]] = []

    def is_sampled(self, trace_id: str) -> bool:
        return True

    def export(
        self,
        span: trace.Trace,
        name: str,
        *,
        kind: trace.Kind,
        begun_us: int,
        attributes: Mapping[str, str | int],
        error: str = "",
    ) -> None:
        self.spans.append((attributes["http.response.status_code"], error))


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def wait_for_the_end(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def fail_within_the_response(scope: Scope, receive: Receive, send: Send) -> None:
    await send(start())
    await send(body(b"a", more=True))
    raise KeyError("b")


@pytest.mark.parametrize(
    ("app", "request_", "rest", "status", "error"),
    [
        (Recorder(), GET, b"", 200, ""),
        (Recorder(), POST % 9, b"abc", 408, "the body took too long"),
        (Recorder(), CHUNKED, b"a\r\n", 413, "the body is too large"),
        (http_only(hang), GET, b"", 504, "there was no response in time"),
        (http_only(fail_within_the_response), GET, b"", 500, "KeyError"),
    ],
)
async def test_span_has_the_status_of_the_response(
    app: AsgiApp,
    request_: bytes,
    rest: bytes,
    status: int,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exported = Exported()
    monkeypatch.setattr(trace, "exporter", exported)
    async with live(app, replace(QUICK, max_body_bytes=9)) as server, asyncio.timeout(60):
        reader, writer = await server.connect()
        writer.write(request_)
        await until_async(lambda: not rest or server.server.state.in_flight > 0)
        writer.write(rest)
        sent = int((await reader.readline()).split()[1])
        assert sent == (200 if status == 500 else status)
        writer.close()
        await server.quiet()
    [(found, text)] = exported.spans
    assert found == status and text.startswith(error)


async def test_span_says_that_the_client_left(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = Exported()
    monkeypatch.setattr(trace, "exporter", exported)
    async with live(http_only(wait_for_the_end), QUICK) as server, asyncio.timeout(60):
        _, writer = await server.connect()
        writer.write(GET)
        await until_async(lambda: server.server.state.in_flight > 0)
        writer.transport.abort()
        await server.quiet()
    assert exported.spans == [(499, "the client left")]


async def test_slow_loris_is_408_though_it_never_stops_sending() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
        while True:
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.02)

    async with live(Recorder(), QUICK) as server, asyncio.timeout(60):
        streams = [await server.connect() for _ in range(20)]
        tasks = [asyncio.ensure_future(drip(writer)) for _, writer in streams]
        assert (await server.talk(CLOSE))[0].status == 200  # nobody else waits
        # Who reads after the server has closed may find the error of their last write instead.
        reads = (reader.readuntil(b"\r\n\r\n") for reader, _ in streams)
        heads = await asyncio.gather(*reads, return_exceptions=True)
        for task in tasks:
            task.cancel()
        for _, writer in streams:
            writer.close()
        await asyncio.wait(tasks)
        await server.quiet()
        for head in heads:
            text = head if isinstance(head, bytes) else b""
            assert isinstance(head, ConnectionError) or b" 408 " in text, head
        assert server.server.state.refused == len(streams)


async def test_client_that_does_not_read_is_cut_off_and_the_stream_told() -> None:
    told = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        try:
            while True:
                await send(body(b"x" * 65_536, more=True))
        except ConnectionError:
            told.set()
            raise

    async with live(http_only(endless), QUICK) as server, asyncio.timeout(60):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(GET)
        await told.wait()
        await server.quiet()
        client.close()


async def test_slow_reader_gets_everything_when_it_keeps_reading() -> None:
    big = bytes(range(256)) * 16_384  # 4 MB

    async with live(sending(start(), body(big)), QUICK) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=65_536)
        writer.write(CLOSE)
        got = bytearray()
        while piece := await reader.read(200_000):
            got += piece
            await asyncio.sleep(0.05)  # about a second in all: longer than every deadline
        assert bytes(got).partition(b"\r\n\r\n")[2] == big
        writer.close()


async def test_half_closed_client_gets_its_answers() -> None:
    async with live(Recorder()) as server:
        reader, writer = await server.connect()
        writer.write(GET + GET)
        writer.write_eof()
        async with asyncio.timeout(60):
            output = await reader.read()
        assert len(parse_answers(output, [], ended=True)) == 2
        writer.close()


async def test_refused_client_gets_its_answer_though_it_keeps_sending() -> None:
    """Without lingering, the unread rest of the body would reset the connection first."""
    async with live(Recorder(), HttpConfig(max_body_bytes=1000, drain_s=0)) as server:
        for _ in range(10):
            reader, writer = await server.connect()
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n")
            writer.write(b"x" * 1_000_000)
            async with asyncio.timeout(60):
                assert b" 413 " in await read_head(reader)
            writer.close()


async def test_reset_connections_leave_nothing_behind() -> None:
    async with live(Recorder()) as server:
        for data in (
            b"",
            b"GET / HT",
            GET,
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
        ):
            for _ in range(5):
                client = socket.create_connection(("127.0.0.1", server.port))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(data)
                client.close()
        await server.quiet()
        assert (await server.talk(CLOSE))[0].status == 200


async def test_connections_and_exchanges_are_freed_without_the_cycle_collector() -> None:
    def alive() -> int:
        return sum(isinstance(one, Connection | Exchange) for one in gc.get_objects())

    async with live(Recorder()) as server:
        await server.talk(CLOSE)
        await server.quiet()
        gc.collect()
        before = alive()
        gc.disable()
        try:
            for request in (GET, POST % 3 + b"abc", b"GET / HTTP/1.1\r\n\r\n"):
                await server.talk(request + CLOSE)
            await server.quiet()
            await until_async(lambda: alive() == before)
        finally:
            gc.enable()


# Draining


async def stopping(server: Live) -> None:
    server.stop.set()
    await until_async(lambda: server.server.state.draining)


async def test_answers_say_close_while_draining_and_idle_connections_end() -> None:
    async with live(Recorder(), HttpConfig(drain_s=1.5)) as server:
        busy_reader, busy = await server.connect()
        idle_reader, idle = await server.connect()
        for reader, writer in ((busy_reader, busy), (idle_reader, idle)):
            writer.write(GET)
            assert b"connection" not in (await read_head(reader)).lower()
        await stopping(server)
        busy.write(GET)
        assert b"connection: close" in await read_head(busy_reader)
        async with asyncio.timeout(60):
            await busy_reader.read()
            assert await idle_reader.read() == b""
        busy.close()
        idle.close()


async def test_requests_in_hand_are_answered_after_the_stop() -> None:
    release = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        await send(start())
        await send(body(b"done"))

    async with live(http_only(slow), HttpConfig(drain_s=0)) as server:
        reader, writer = await server.connect()
        writer.write(GET)
        await until_async(lambda: server.server.state.in_flight > 0)
        await stopping(server)
        await asyncio.sleep(0.1)
        release.set()
        async with asyncio.timeout(60):
            assert (await reader.read()).endswith(b"done")
        writer.close()


async def test_connection_ends_soon_when_its_response_outlasts_the_drain() -> None:
    """Its head promised keep-alive before the stop; the connection must not hold the stop up."""
    release = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b"a", more=True))
        await release.wait()
        await send(body(b"b"))

    async with live(http_only(stream), HttpConfig(drain_s=0)) as server, asyncio.timeout(60):
        reader, writer = await server.connect()
        writer.write(GET)
        assert b"connection" not in (await read_head(reader)).lower()
        await stopping(server)
        await asyncio.sleep(0.1)
        release.set()
        assert (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()


async def test_request_that_arrived_with_the_stop_is_answered() -> None:
    async with live(Recorder(), HttpConfig(drain_s=0)) as server, asyncio.timeout(60):
        reader, writer = await server.connect()
        writer.write(GET)
        await read_head(reader)
        sock = writer.get_extra_info("socket")
        os.write(sock.fileno(), GET)  # not read yet when the idle connections are closed
        server.server.state.draining = True
        for connection in server.server.connections:
            connection.close_idle()
        assert b"connection: close" in await read_head(reader)
        writer.close()


async def test_new_connections_are_left_to_others_while_draining() -> None:
    async with live(Recorder(), HttpConfig(drain_s=0.3)) as server:
        _, before = await server.connect()
        await stopping(server)
        reader, writer = await server.connect()  # the kernel takes it: for another worker
        writer.write(GET)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await reader.readexactly(1)
        writer.close()
        before.close()


async def hang_for_ever(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def outlast_the_client(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["type"] != DISCONNECT:
        pass
    scope["state"]["told"].set()
    await asyncio.Event().wait()


async def stream_for_ever(scope: Scope, receive: Receive, send: Send) -> None:
    await send(start())
    await send(body(b"data: x\n\n", more=True))
    await asyncio.Event().wait()


@asynccontextmanager
async def stopped_during_a_request(
    app: AsgiApp = hang_for_ever,
    *,
    cut_off_s: float | None = None,
    metrics: HttpMetrics | None = None,
) -> AsyncIterator[tuple[HttpServer, asyncio.Task[None], asyncio.StreamReader]]:
    """A server that was told to stop while a request hangs, its run, and what its client reads."""
    with listening() as sockets:
        stop, told = asyncio.Event(), asyncio.Event()
        server = HttpServer(
            http_only(app),
            sockets,
            HttpConfig(drain_s=0),
            {"told": told},
            cut_off_s=cut_off_s,
            metrics=metrics,
        )
        run = asyncio.create_task(server.run(stop))
        await server.ready.wait()
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        writer.write(GET)
        await until_async(lambda: server.state.in_flight > 0)
        if app is stream_for_ever:
            await reader.readuntil(b"data: x")
        if app is outlast_the_client:
            writer.transport.abort()
            await told.wait()
        stop.set()
        yield server, run, reader
        writer.close()


async def test_request_that_outlasts_the_stop_is_cut_off() -> None:
    async with stopped_during_a_request(cut_off_s=0.1) as (server, run, reader):
        async with asyncio.timeout(60):
            await run
            assert await reader.read() == b""
        assert server.state.in_flight == 0


async def test_some_of_many_requests_that_a_stop_cuts_off_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with listening() as sockets:
        stop, config = asyncio.Event(), HttpConfig(drain_s=0)
        server = HttpServer(http_only(hang_for_ever), sockets, config, cut_off_s=0.1)
        run = asyncio.create_task(server.run(stop))
        await server.ready.wait()
        writers = []
        for _ in range(30):
            _, writer = await asyncio.open_connection(*sockets[0].getsockname())
            writer.write(GET)
            writers.append(writer)
        await until_async(lambda: server.state.in_flight == len(writers))
        stop.set()
        async with asyncio.timeout(60):
            await run
        for writer in writers:
            writer.close()
    texts = [record.getMessage() for record in caplog.records]
    assert sum("request GET /x is cut off after" in text for text in texts) == 20
    assert any("30 requests and 30 connections cut off" in text for text in texts)


@pytest.mark.parametrize(
    ("app", "code", "span"),
    [
        (hang_for_ever, "5xx", (503, "the server stopped")),
        # Else each stop of an application with streams would cause the alert of failed requests.
        (stream_for_ever, "2xx", (200, "the server stopped")),
        (outlast_the_client, "4xx", (499, "the client left")),
    ],
)
async def test_request_that_a_stop_cuts_off_is_counted_as_what_its_client_got(
    app: AsgiApp,
    code: str,
    span: tuple[int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exported = Exported()
    monkeypatch.setattr(trace, "exporter", exported)
    file = MetricsFile(tmp_path, "worker@0", http_series())
    metrics = HttpMetrics(file)
    async with stopped_during_a_request(app, cut_off_s=0.1, metrics=metrics) as parts:
        async with asyncio.timeout(60):
            await parts[1]
    found = [
        (one, file.values[file.offset(REQUESTS.series(method="GET", code=one))]) for one in CODES
    ]
    assert [one for one in found if one[1]] == [(code, 1.0)]
    assert exported.spans == [span]


async def test_cancelling_cuts_requests_in_hand_off() -> None:
    async with stopped_during_a_request() as (server, run, reader):
        await asyncio.sleep(0.05)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert server.state.in_flight == 0
        async with asyncio.timeout(60):
            assert await reader.read() == b""


async def test_stats_count_requests_and_tell_a_rate() -> None:
    async with live(Recorder(), replace(QUICK, max_body_bytes=9)) as server:
        for _ in range(20):
            await server.talk(CLOSE)
        await server.talk(b"rubbish\r\n\r\n")  # 400
        await server.talk(POST % 10)  # 413, by its head
        await server.talk(CHUNKED + b"a\r\n")  # 413, by its body
        await server.talk(POST % 9)  # 408
        served = server.server
        assert (served.state.served, served.state.refused) == (20, 4)
        assert re.fullmatch("[1-9][0-9]* req/s; 0 in flight", served.status())
        assert served.status() == "0 req/s; 0 in flight"
        assert served.heartbeat.fresh(clock.monotonic())
