"""One HTTP request on a connection of its own, and its response: bounded in size and time.

Redirects are not followed: they would carry a password to another server. The addresses of a name
are looked up once, checked, and then called, so that the name cannot resolve to another address
after the check.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Literal

from msgspec import Struct

from alpinehub.alpinebits_client.address import Allowed, Url, any_address, read_address

Kind = Literal["name", "forbidden", "connect", "tls", "timeout", "cut", "large", "http"]

#: Of the head of a response, and so of each of its lines; and how many headers it has.
_MAX_HEAD_BYTES, _MAX_HEADERS = 64 * 1024, 200
_MAX_INTERIM = 10
#: Of a Content-Length; of some thousands no number is made.
_MAX_DIGITS = 18
_READ_BYTES = 64 * 1024
#: Reading all of the system's authorities takes tens of milliseconds; now and then they change.
_TRUST_S = 300.0
_contexts: dict[tuple[str | None, bool], tuple[float, ssl.SSLContext]] = {}


class RequestFailed(Exception):
    """There is no usable response. The text says why, and holds nothing of what was sent."""

    def __init__(self, kind: Kind, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.hint = hint


class HttpResponse(Struct, frozen=True, kw_only=True):
    """A response, whatever its status."""

    status: int
    #: By name in lower case; one that came several times is joined by commas.
    headers: Mapping[str, str]
    body: bytes
    #: From the look-up of the name to the last byte.
    took_ms: int


class HttpClient(Struct, frozen=True, kw_only=True):
    """How servers are called."""

    #: For the connection, from the look-up of the name on, and again for the request and its
    #: answer: what a caller does in between takes none of it.
    timeout_s: float = 30.0
    max_bytes: int = 64 * 1024 * 1024
    allowed: Allowed = any_address
    #: Certificates are checked against the system's authorities, and those of this file.
    ca_file: str | None = None
    insecure: bool = False

    async def call(
        self, url: Url, headers: Mapping[str, str], body: bytes, *, method: str = "POST"
    ) -> HttpResponse:
        """Connect, send a request and read the response. Raises: RequestFailed."""
        async with self.connect(url) as connection:
            return await connection.call(headers, body, method=method)

    @asynccontextmanager
    async def connect(self, url: Url) -> AsyncIterator[HttpConnection]:
        """A connection for one request. Raises: RequestFailed."""
        began = monotonic()
        try:
            async with asyncio.timeout(self.timeout_s):
                reader, writer = await self._connect(url)
        except TimeoutError:
            text = f"{url.host} cannot be reached within {self.timeout_s:g} s"
            raise RequestFailed("timeout", text) from None
        try:
            yield HttpConnection(client=self, url=url, began=began, reader=reader, writer=writer)
        finally:
            writer.transport.abort()  # an orderly close would wait for a dead peer

    async def _connect(self, url: Url) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the first address that takes one. Each has an equal share of the time
        left: one that does not answer leaves some for the others.
        """
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        addresses = await self._addresses(url)
        tls = await _tls(self.ca_file, self.insecure) if url.secure else None
        name = url.host if url.secure else None
        refused: OSError | None = None
        for number, address in enumerate(addresses):
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(left_s / (len(addresses) - number)):
                    return await asyncio.open_connection(
                        address, url.port, ssl=tls, server_hostname=name, limit=_MAX_HEAD_BYTES
                    )
            except ssl.SSLCertVerificationError as error:
                hint = (
                    "add the certificate of its authority to those that the system trusts"
                    " (update-ca-certificates); `pms`, `check` and `webhook send` have --ca-file"
                    " and --insecure"
                )
                text = f"the certificate of {url.host} is not valid: {error.verify_message}"
                raise RequestFailed("tls", text, hint) from None
            except ssl.SSLError as error:
                text = f"{url.host}:{url.port} does not speak TLS: {error.reason}"
                raise RequestFailed("tls", text, "is it http:// there?") from None
            except OSError as error:  # also a TimeoutError
                refused = error
        if isinstance(refused, TimeoutError) and refused.errno is None:  # ours, not the system's
            raise refused  # `connect` tells it
        text = f"{url.host}:{url.port} cannot be reached: {_why(refused)}"
        raise RequestFailed("connect", text, "check the URL, and that the server runs")

    async def _addresses(self, url: Url) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise RequestFailed("name", f"there is no host {url.host}", "check the URL") from None
        addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
        allowed = [one for one in addresses if self.allowed(read_address(one))]
        if not allowed:
            hint = "[alpinehub] push_private = true allows this machine and its network"
            text = f"{url.host} is at an address that may not be called"
            raise RequestFailed("forbidden", text, hint)
        return allowed


class HttpConnection(Struct, kw_only=True):
    """A connection to a server, for one request."""

    client: HttpClient
    url: Url
    #: The monotonic time at which the look-up of the name began.
    began: float
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def call(
        self, headers: Mapping[str, str], body: bytes, *, method: str = "POST"
    ) -> HttpResponse:
        """Send the request and read the response, in `timeout_s`. Raises: RequestFailed."""
        host, timeout_s = self.url.host, self.client.timeout_s
        late = "does not answer"
        try:
            async with asyncio.timeout(timeout_s):
                await _write(self.writer, _head(self.url, method, headers, body))
                status, answered = await read_head(self.reader)
                late = "does not finish its answer"
                content = await read_body(self.reader, answered, self.client.max_bytes)
        except TimeoutError:
            raise RequestFailed("timeout", f"{host} {late} within {timeout_s:g} s") from None
        except asyncio.IncompleteReadError:
            text = f"{host} closed the connection before its answer was whole"
            raise RequestFailed("cut", text) from None
        except ConnectionError:
            raise RequestFailed("cut", f"{host} broke off the connection") from None
        except ssl.SSLError as error:
            raise RequestFailed("tls", f"TLS with {host} failed: {error.reason}") from None
        except OSError as error:
            text = f"the connection with {host} broke: {_why(error)}"
            raise RequestFailed("cut", text) from None
        took_ms = round((monotonic() - self.began) * 1000)
        return HttpResponse(status=status, headers=answered, body=content, took_ms=took_ms)


async def _tls(ca_file: str | None, insecure: bool) -> ssl.SSLContext:
    """The context of all calls of some minutes. Raises: RequestFailed if `ca_file` is unusable."""
    until, context = _contexts.get((ca_file, insecure), (0.0, None))
    if context is None or monotonic() >= until:
        context = await asyncio.to_thread(_make_tls, ca_file, insecure)
        _contexts[ca_file, insecure] = monotonic() + _TRUST_S, context
    return context


def _make_tls(ca_file: str | None, insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError:  # also an SSLError: it is no PEM file
            text = f"{ca_file} holds no certificates that can be read"
            raise RequestFailed("tls", text) from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _why(error: OSError | None) -> str:
    """The system's words, without the address that asyncio puts before them."""
    if error is None or not error.errno:
        return "no connection"
    return os.strerror(error.errno).lower()


def _head(url: Url, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    fixed = {"Host": url.authority, "Connection": "close", "Content-Length": str(len(body))}
    lines = [f"{method} {url.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in {**fixed, **headers}.items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


async def _write(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Send a request. A lost connection is no error yet: the server may have answered early."""
    try:
        writer.write(request)
        await writer.drain()
    except ConnectionError:
        return


async def _line(reader: asyncio.StreamReader) -> str:
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.LimitOverrunError:
        raise _too_large_head() from None
    return line.decode("latin-1").rstrip("\r\n")


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers of a response, after some interim ones. Raises: RequestFailed;
    IncompleteReadError if it ends early.
    """
    for _ in range(_MAX_INTERIM):
        version, _, rest = (await _line(reader)).partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit()):
            raise RequestFailed("http", "what answers does not speak HTTP/1.1")
        headers: dict[str, str] = {}
        size = 0
        for _ in range(_MAX_HEADERS + 1):
            line = await _line(reader)
            if not line:
                break
            size += len(line)
            if size > _MAX_HEAD_BYTES:
                raise _too_large_head()
            name, _, value = line.partition(":")
            name = name.strip().lower()
            before = headers.get(name)
            headers[name] = value.strip() if before is None else f"{before}, {value.strip()}"
        else:
            raise _too_large_head()
        if int(code) >= 200:
            return int(code), headers
    raise RequestFailed("http", "the answer never begins")


async def read_body(reader: asyncio.StreamReader, head: Mapping[str, str], most: int) -> bytes:
    """The body that follows these headers. Raises: as `read_head`."""
    if "chunked" in head.get("transfer-encoding", "").lower():
        return await _read_chunks(reader, most)
    length = head.get("content-length")
    if length is None:
        return await _read_some(reader, None, most)
    if not (length.isascii() and length.isdigit() and len(length) <= _MAX_DIGITS):
        raise RequestFailed("http", "the answer has no Content-Length that can be read")
    return await _read_some(reader, int(length), most)


async def _read_some(reader: asyncio.StreamReader, length: int | None, most: int) -> bytes:
    """`length` bytes; None: all there are. A connection that ends early is IncompleteReadError."""
    if length is not None and length > most:
        raise _too_large(most)
    data = bytearray()
    while length is None or len(data) < length:
        wanted = _READ_BYTES if length is None else min(_READ_BYTES, length - len(data))
        piece = await reader.read(wanted)
        if not piece and length is None:
            break
        if not piece:
            raise asyncio.IncompleteReadError(bytes(data), length)
        data += piece
        if len(data) > most:
            raise _too_large(most)
    return bytes(data)


async def _read_chunks(reader: asyncio.StreamReader, most: int) -> bytes:
    data = bytearray()
    while True:
        size = (await _line(reader)).partition(";")[0].strip()
        try:
            length = int(size, 16)
        except ValueError:
            raise RequestFailed("http", "the answer's chunks cannot be read") from None
        if length < 0 or len(data) + length > most:
            raise _too_large(most)
        if length == 0:
            break
        data += await _read_some(reader, length, most)
        await _line(reader)
    while await _line(reader):
        pass  # trailers
    return bytes(data)


def _too_large_head() -> RequestFailed:
    return RequestFailed("http", "the head of the answer is too large")


def _too_large(most: int) -> RequestFailed:
    return RequestFailed("large", f"the answer is larger than {most:,} bytes")
