"""The AlpineBits client: a login at a server, and requests to it."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from gzip import compress
from secrets import token_hex

from msgspec import Struct

from alpinehub.alpinebits.protocol import Protocol
from alpinehub.alpinebits_client.address import Url
from alpinehub.alpinebits_client.http import HttpClient, HttpResponse
from cordata import current_trace

#: The server's header that says whether bodies may be compressed.
ACCEPT_ENCODING = "x-alpinebits-server-accept-encoding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A server and the credentials for it; its repr does not hold the password."""

    url: Url
    user: str
    password: str = field(repr=False)
    protocol: Protocol
    #: X-AlpineBits-ClientID; "": the header is not sent.
    client_id: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Those of every request."""
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {
            "Authorization": f"Basic {token}",
            "X-AlpineBits-ClientProtocolVersion": self.protocol.name,
            "Accept": "text/xml, application/xml, text/plain",
            "User-Agent": "alpinehub",
        }
        if self.client_id:
            headers["X-AlpineBits-ClientID"] = self.client_id
        return headers


class AlpineBitsClient(Struct, kw_only=True):
    """A conversation with one server."""

    login: Login
    http: HttpClient

    async def call(
        self, action: str, document: bytes | None = None, *, gzip: bool = False
    ) -> HttpResponse:
        """One request on a connection of its own. `gzip`: see `request`. Raises: RequestFailed."""
        return await self.http.call(self.login.url, *self.request(action, document, gzip=gzip))

    def request(
        self, action: str, document: bytes | None = None, *, gzip: bool = False
    ) -> tuple[dict[str, str], bytes]:
        """Headers and body. `gzip`: only to a server that has said so (`accepts_gzip`)."""
        content_type, body = encode_multipart(action, document)
        headers = {**self.login.headers, "Content-Type": content_type}
        if (trace := current_trace()) is not None:
            headers["traceparent"] = trace.traceparent
        if gzip:
            headers["Content-Encoding"] = "gzip"
            body = compress(body, mtime=0)
        return headers, body


def accepts_gzip(answer: HttpResponse) -> bool:
    """Whether a server has said that it takes bodies compressed by gzip."""
    return "gzip" in answer.headers.get(ACCEPT_ENCODING, "").lower()


def encode_multipart(action: str, document: bytes | None) -> tuple[str, bytes]:
    """Content-Type and body: multipart/form-data with `action` and, where there is one, `request`.

    As a plain field, which every server must read; the boundary is in no document.
    """
    boundary = f"alpinebits-{token_hex(12)}"
    fields = {"action": action.encode(), **({} if document is None else {"request": document})}
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode()
        + value
        + b"\r\n"
        for name, value in fields.items()
    ]
    body = b"".join((*parts, f"--{boundary}--\r\n".encode()))
    return f"multipart/form-data; boundary={boundary}", body
