"""A server to play hotel software against, which answers as told; and the command that does."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alpinehub.cli import main

PATH = "/api/alpinebits"


@dataclass
class Asked:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def action(self) -> str:
        """The form field."""
        return self.body.partition(b'name="action"\r\n\r\n')[2].partition(b"\r\n")[0].decode()

    @property
    def document(self) -> bytes:
        """The form field request."""
        return self.body.partition(b'name="request"\r\n\r\n')[2].rpartition(b"\r\n--")[0]


Respond = Callable[[Asked], bytes | Awaitable[bytes | None] | None]


@dataclass
class Scripted:
    """A server that answers what `respond` makes of each request, byte by byte as it is."""

    respond: Respond
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    #: Of the connections that are open.
    tasks: set[asyncio.Task[object]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Of its AlpineBits."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one request. None as answer: the connection is left open, and silent."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (one.partition(": ") for one in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            asked = Asked(line, headers, body)
            self.asked.append(asked)
            answer = self.respond(asked)
            if inspect.isawaitable(answer):
                answer = await answer
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.tasks.discard(task)
            writer.close()


@asynccontextmanager
async def scripted(respond: Respond, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    """Such a server, on a port of its own."""
    peer = Scripted(respond)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, ssl=tls)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        await asyncio.sleep(0)  # connections end in a turn of their own
        left = [*peer.tasks]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def http(
    body: bytes | str, status: str = "200 OK", headers: Mapping[str, str] | None = None
) -> bytes:
    """A response."""
    data = body.encode() if isinstance(body, str) else body
    said = {"Content-Type": "text/xml", "Content-Length": str(len(data)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + data


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document that it printed."""
        return json.loads(self.out)


async def command(*words: str, password: str = "demo", given: str = "") -> Done:
    """Run `alpinehub ...` in a thread of this process: hundreds of them in one suite."""
    streams = [io.TextIOWrapper(io.BytesIO(data), "utf-8") for data in (given.encode(), b"", b"")]
    stdin, out, err = streams

    def run() -> int:
        kept, sys.stdin = sys.stdin, stdin
        try:
            with redirect_stdout(out), redirect_stderr(err), _password(password):
                main(words)
        except SystemExit as end:
            return int(str(end.code))
        finally:
            sys.stdin = kept

    code = await asyncio.to_thread(run)
    said = []
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
        said.append(stream.read())
    return Done(code, *said)


@contextmanager
def _password(password: str) -> Iterator[None]:
    os.environ["ALPINEHUB_PASSWORD"] = password
    try:
        yield
    finally:
        del os.environ["ALPINEHUB_PASSWORD"]


def make_certificate(folder: Path) -> ssl.SSLContext:
    """A server's side of TLS, by a certificate of its own for 127.0.0.1: folder/cert.pem."""
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    argv += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1"]
    argv += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
