"""What `alpinehub pms` says of servers that do not answer as AlpineBits wants it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
from tests.integration.alpinebits_client.peers import (
    Asked,
    command,
    http,
    make_certificate,
    scripted,
)
from tests.integration.hub.command import configure
from tests.integration.hub.material import BOOKING, open_hub
from tests.servers.process import free_port

from alpinehub.alpinebits_client import http as client_http
from alpinehub.alpinebits_client.address import Url, parse_url
from alpinehub.alpinebits_client.http import HttpClient, RequestFailed

_OTA = 'xmlns="http://www.opentravel.org/OTA/2003/05"'
_EMPTY = (
    f'<OTA_ResRetrieveRS {_OTA} Version="7.000"><Success/><ReservationsList/></OTA_ResRetrieveRS>'
)
_GZIP = {"X-AlpineBits-Server-Accept-Encoding": "gzip"}
_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def poll(url: str, *words: str) -> tuple[int, dict[str, object], str]:
    done = await command(
        "pms", "poll", "--url", url, "--user", "u", "--hotel", "H", "--json", *words
    )
    return done.code, json.loads(done.out), done.err


@pytest.mark.parametrize(
    ("answer", "code", "outcome", "said"),
    [
        (http("<!DOCTYPE html><title>Shop</title>", "404 No"), 3, "rejected", "web page"),
        (http("<html><title>Hotel Shop</title>"), 3, "unreadable", "(Hotel Shop)"),
        (http("", "302 Found", {"Location": "https://x/y"}), 3, "rejected", "https://x/y"),
        (http("ERROR:no\x1b[2J such", "400 Bad"), 3, "rejected", "no\\x1b[2J such"),
        (http("ERROR:with 200"), 3, "rejected", "with 200"),
        (http(""), 3, "unreadable", "empty"),
        (http("<a>"), 3, "unreadable", "cannot be parsed"),
        (http(_EMPTY.replace("ResRetrieve", "NotifReport")), 3, "unreadable", "NotifReportRS"),
        (http(_EMPTY.replace("<Success/>", "")), 1, "unreadable", None),
        (http(_EMPTY.replace('Version="7.000"', "")), 1, "success", None),
        (http(_EMPTY), 0, "success", None),
        (_CHUNKS + f"{len(_EMPTY):x};x=1\r\n{_EMPTY}\r\n0\r\nA: b\r\n\r\n".encode(), 0,
         "success", None),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + http(_EMPTY), 0, "success", None),
        (b"HTTP/1.0 200 OK\r\n\r\n" + _EMPTY.encode(), 0, "success", None),
        (http(_EMPTY)[:-10], 3, "unreachable", "before its answer was whole"),
        (_CHUNKS + b"zz\r\n", 3, "unreachable", "chunks"),
        (_CHUNKS + b"-5\r\n", 3, "unreachable", "larger than"),
        (b"SSH-2.0-OpenSSH\r\n", 3, "unreachable", "HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", 3, "unreachable", "larger"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 3, "unreachable",
         "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, 3, "unreachable", "too large"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300, 3, "unreachable", "too large"),
        (b"HTTP/1.1 200 OK\r\n" + (b"a: " + b"x" * 1000 + b"\r\n") * 100 + b"\r\n", 3,
         "unreachable", "too large"),
        (b"HTTP/1.1 102 x\r\n\r\n" * 20, 3, "unreachable", "never begins"),
        (b"", 3, "unreachable", "before its answer was whole"),
    ],
)  # fmt: skip
async def test_poll_tells_what_came_instead_of_an_answer(
    answer: bytes, code: int, outcome: str, said: str | None
) -> None:
    async with scripted(lambda asked: answer) as peer:
        ended, told, error = await poll(peer.url)
        assert (ended, told["outcome"]) == (code, outcome)
        assert said is None or said in error
        assert len(peer.asked) == 1, "asked again, or followed a redirect"


async def test_poll_tells_how_its_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = HttpClient._connect

    async def broken(
        self: HttpClient, url: Url
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await connect(self, url)
        reader.set_exception(OSError(errno.EHOSTUNREACH, "planted"))
        return reader, writer

    monkeypatch.setattr(HttpClient, "_connect", broken)
    async with scripted(lambda asked: None) as peer:
        code, told, error = await poll(peer.url)
        assert code == 3 and told["reason"] == "cut" and "no route to host" in error


async def test_poll_says_what_breaks_the_schema() -> None:
    bad = _EMPTY.replace("<ReservationsList/>", "<ReservationList/>")
    async with scripted(lambda asked: http(bad)) as peer:
        code, told, _ = await poll(peer.url)
        assert code == 1 and "ReservationsList expected" in str(told["invalid"])


async def test_poll_gives_up_on_a_silent_server_in_time() -> None:
    async with scripted(lambda asked: None) as peer:
        code, told, error = await poll(peer.url, "--timeout", "0.5")
        assert code == 3 and told["reason"] == "timeout" and "within 0.5 s" in error


async def test_answer_is_read_when_the_request_is_sent_long_after_the_connection_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late_s = 0.0
    monkeypatch.setattr(client_http, "monotonic", lambda: monotonic() + late_s)
    client = HttpClient()
    async with scripted(lambda asked: http("it is late")) as peer:
        async with client.connect(parse_url(peer.url)) as connection:
            late_s = 2 * client.timeout_s
            assert (await connection.call({}, b"")).body == b"it is late"


async def test_poll_gives_up_where_nothing_listens_and_nobody_is() -> None:
    code, told, error = await poll(f"http://127.0.0.1:{free_port()}/")
    assert code == 3 and told["reason"] == "connect" and "refused" in error
    assert "hint: check the URL, and that the server runs" in error
    code, told, error = await poll("http://nowhere.invalid/")
    assert code == 3 and told["reason"] == "name" and "hint: check the URL" in error
    assert "warning: http://nowhere.invalid/ has no TLS" in error


async def test_certificates_are_checked_unless_told_otherwise(tmp_path: Path) -> None:
    async with scripted(lambda asked: http(_EMPTY), tls=make_certificate(tmp_path)) as peer:
        url = peer.url.replace("http:", "https:")
        code, told, error = await poll(url)
        assert code == 3 and told["reason"] == "tls" and "--ca-file" in error
        assert (await poll(url, "--insecure"))[0] == 0
        assert (await poll(url, "--ca-file", str(tmp_path / "cert.pem")))[0] == 0
        (tmp_path / "text").write_text("no certificate")
        code, told, error = await poll(url, "--ca-file", str(tmp_path / "text"))
        assert code == 3 and told["reason"] == "tls" and "text holds no certificates" in error
        code, told, error = await poll(peer.url)
        assert code == 3 and told["outcome"] == "unreachable"
    async with await asyncio.start_server(say_no, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        code, told, error = await poll(f"https://127.0.0.1:{port}/")
        assert code == 3 and "does not speak TLS" in error


async def test_authorities_are_read_once_for_the_calls_of_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tmp_path / "cert.pem"
    async with scripted(lambda asked: http("yes"), tls=make_certificate(tmp_path)) as peer:
        url, client = (
            parse_url(peer.url.replace("http:", "https:")),
            HttpClient(ca_file=str(authority)),
        )
        assert (await client.call(url, {}, b"")).status == 200
        authority.unlink()
        assert (await client.call(url, {}, b"")).status == 200
        monkeypatch.setattr(client_http, "monotonic", lambda: monotonic() + 301)
        with pytest.raises(RequestFailed, match=r"cert\.pem holds no certificates"):
            await client.call(url, {}, b"")


async def test_server_is_called_at_its_other_address_when_the_first_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two(self: HttpClient, url: Url) -> list[str]:  # as no name of a test host has
        return ["127.0.0.2", "127.0.0.1"]

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(HttpClient, "_addresses", two)
    async with scripted(lambda asked: http("yes"), tls=make_certificate(tmp_path)) as peer:
        url = parse_url(peer.url.replace("http:", "https:"))
        async with await asyncio.start_server(keep_silent, "127.0.0.2", peer.port):
            client = HttpClient(timeout_s=4.0, insecure=True)
            assert (await client.call(url, {}, b"")).body == b"yes"


async def say_no(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What a server without TLS does with its hello."""
    await reader.read(1)
    writer.write(http("", "400 Bad Request"))
    writer.close()


async def test_body_is_packed_only_after_the_server_has_said_that_it_takes_it() -> None:
    async with scripted(lambda asked: http(_EMPTY)) as peer:
        done = await command(
            "pms", "poll", "--url", peer.url, "--user", "u", "--hotel", "H", "--gzip"
        )
        assert done.code == 1 and "does not announce that it accepts gzip" in done.err
        assert [one.action for one in peer.asked] == ["OTA_Ping:Handshaking"]

    def respond(asked: Asked) -> bytes:
        if "content-encoding" in asked.headers:
            asked.body = gzip.decompress(asked.body)
        return http(_EMPTY, headers=_GZIP)

    async with scripted(respond) as peer:
        assert (await poll(peer.url, "--gzip"))[0] == 0
        packed = ["content-encoding" in one.headers for one in peer.asked]
        assert packed == [False, True]
        assert peer.asked[1].action == "OTA_Read:GuestRequests"


async def test_answer_that_is_printed_as_it_came_commands_no_terminal() -> None:
    """ESC, CSI (U+009B) and U+202E; to a file or a pipe it goes byte by byte."""
    body = "<a>\x1b[31m \x9b31m \u202eäß\t\U0001f3e8</a>\n"
    async with scripted(lambda asked: http(body)) as peer:
        words = ("pms", "poll", "--url", peer.url, "--user", "u", "--hotel", "H", "--raw")
        shown = await asyncio.to_thread(on_terminal, *words)
        assert "&#x1B;[31m &#x9B;31m &#x202E;äß\t\U0001f3e8</a>" in shown
        assert not set(shown) & set("\x1b\x9b\u202e")
        done = await command(*words)
        assert body in done.out


async def test_request_that_is_printed_as_xml_commands_no_terminal(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub:
        message = "Hallo \x9b31m und \u202eäß"
        one = (await hub.post({**BOOKING, "message": message})).id
        config = str(configure(tmp_path))
        words = ("requests", "show", one, "--xml", "2024-10", "--config", config)
        shown = await asyncio.to_thread(on_terminal, *words)
        assert "<OTA_ResRetrieveRS" in shown and "äß" in shown
        assert not set(shown) & set("\x1b\x9b\u202e")


def on_terminal(*words: str) -> str:
    """What a command writes to a terminal: less than its buffer holds."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from alpinehub.cli import main; main()", *words]
    env = {
        **os.environ,
        "PYTHONPATH": ":".join(sys.path),
        "ALPINEHUB_PASSWORD": "demo",
        "PYTHONUTF8": "1",
    }
    none = subprocess.DEVNULL
    subprocess.run(command, stdin=none, stdout=theirs, stderr=none, env=env, timeout=60)
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while piece := os.read(ours, 65536):
            written += piece
    os.close(ours)
    return written.decode().replace("\r\n", "\n")
