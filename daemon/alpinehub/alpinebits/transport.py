"""The transport of a request: credentials, protocol version, and the form; errors are plain text.

The body is a form with `action` and `request`; its size is bounded compressed and decompressed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import zlib
from dataclasses import dataclass
from typing import Final

from alpinehub.alpinebits import transport_error
from alpinehub.alpinebits.call import THREAD_BYTES
from alpinehub.alpinebits.concurrency_limit import BUSY
from alpinehub.alpinebits.document import MAX_BODY_BYTES, clean
from alpinehub.alpinebits.transport_error import TransportError
from alpinehub.asgi import BodyFault, BodyRefused, Reply, Request
from alpinehub.form_body import FORM_TYPES, Broken, Fault, media_type, read_parts
from alpinehub.login import TooManyLogins, authenticate, shown
from alpinehub.memory_budget import Allocation
from alpinehub.models import Account
from cordata import Context

#: Most parts of a form: two are expected, a few more are ignored.
_MAX_PARTS = 16
#: The form of a protocol version's name, supported or not ("2015-07b" existed).
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}[a-z]?")
_PROBLEMS: Final[dict[Fault, str]] = {
    "no_boundary": "multipart/form-data without a boundary",
    "malformed": "the multipart body is malformed",
    "cut_off": "the multipart body is cut off: its last boundary is missing",
    "too_many_parts": "the form has too many parts",
    "large_headers": "the headers of a part of the form are too large",
}


@dataclass(frozen=True, slots=True)
class Form:
    """The two fields of an AlpineBits request."""

    #: "": not sent.
    action: str
    #: The bytes of the XML document, as sent; None: not sent.
    request: bytes | None


def unpack(body: bytes, encoding: str) -> bytes:
    """The body without its Content-Encoding. Raises: TransportError for an unknown or broken one
    (415, 400) and for one that grows beyond MAX_BODY_BYTES (413).
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise TransportError(415, "the only Content-Encoding accepted is gzip")
    unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error:
        raise TransportError(400, "the body is not gzip, though Content-Encoding says so") from None
    if len(unpacked) > MAX_BODY_BYTES:
        raise TransportError(413, "the unpacked body is too large")
    if not unpacker.eof or unpacker.unused_data:
        raise TransportError(400, "the gzip body is cut off or followed by other data")
    return unpacked


def parse_form(content_type: str, body: bytes) -> Form:
    """The form in a decompressed body.

    It is multipart/form-data, with `request` as a plain field or a file part;
    application/x-www-form-urlencoded is accepted too. Raises: TransportError.
    """
    if media_type(content_type) not in FORM_TYPES:
        raise TransportError(415, "the body must be a form: multipart/form-data")
    try:
        parts = read_parts(body, content_type, most=_MAX_PARTS)
    except Broken as broken:
        raise TransportError(400, _PROBLEMS[broken.fault]) from None
    fields: dict[bytes, bytes] = {}
    for part in parts:
        if part.name is None:
            raise TransportError(400, "a part of the form has no name")
        if part.name in fields and part.name in (b"action", b"request"):
            raise TransportError(400, f"the form has two fields named {part.name.decode()}")
        fields[part.name] = part.data
    # Some form libraries add white space.
    action = fields.get(b"action", b"").decode("latin-1").strip()
    return Form(action=action, request=fields.get(b"request"))


#: Of every response: from now on the client may compress its requests.
HEADERS = ((b"x-alpinebits-server-accept-encoding", b"gzip"),)
_BODY_ERRORS: Final[dict[BodyFault, tuple[int, str]]] = {
    "disconnected": (400, "the request was cut off"),
    "too_large": (413, "the body is too large"),
    "busy": (503, BUSY),
}
TEXT = b"text/plain; charset=utf-8"
_MAX_CLIENT_ID_CHARS = 64


async def log_in(ctx: Context, request: Request) -> Account:
    """Authenticate a request. Raises: TransportError (401), TooManyLogins, StoreUnavailable."""
    credentials = _credentials(request.header(b"authorization"))
    if credentials is None:
        raise TransportError(401, transport_error.BAD_CREDENTIALS)
    name, password = credentials
    try:
        account = await authenticate(ctx, name, password, address=request.client or "")
    except TooManyLogins as error:
        request.set_reason(f"{error.text} (account {shown(name)})")
        raise
    if account is None:
        raise TransportError(401, transport_error.BAD_CREDENTIALS, note=f" (account {shown(name)})")
    return account


def _credentials(header: str) -> tuple[str, str] | None:
    """Account and password of a Basic Authorization header (RFC 7617); None if it is not one.

    The server asks for UTF-8; other bytes are read as Latin-1, which old clients send.
    """
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = base64.b64decode(token.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        pair = decoded.decode("utf-8")
    except UnicodeDecodeError:
        pair = decoded.decode("latin-1")
    user, colon, password = pair.partition(":")
    return (user, password) if colon and user else None


def protocol_name(request: Request) -> str:
    """The client's protocol version, supported or not. Raises: TransportError (400)."""
    name = request.header(b"x-alpinebits-clientprotocolversion").strip()
    if not name:
        raise TransportError(400, "the header X-AlpineBits-ClientProtocolVersion is missing")
    if not _VERSION.fullmatch(name):
        raise TransportError(400, transport_error.BAD_VERSION)
    return name


def client_id(request: Request) -> str:
    """X-AlpineBits-ClientID, which is optional; "" if there is none."""
    name = clean(request.header(b"x-alpinebits-clientid")).strip()
    return name[:_MAX_CLIENT_ID_CHARS]


async def read_form(request: Request, allocation: Allocation) -> Form:
    """The form in the body. Raises: TransportError (413, 415, 400, 503)."""
    try:
        received = await request.read_body(allocation, MAX_BODY_BYTES)
    except BodyRefused as refused:
        raise TransportError(*_BODY_ERRORS[refused.fault]) from None
    body = unpack(received, request.header(b"content-encoding"))
    if not allocation.grow_to(max(len(received), len(body))):  # it may have been compressed
        raise TransportError(503, BUSY)
    content_type = request.header(b"content-type")
    if len(body) > THREAD_BYTES:
        return await asyncio.to_thread(parse_form, content_type, body)
    return parse_form(content_type, body)


def refuse(request: Request, problem: TransportError) -> Reply:
    """The response for a transport error; the HTTP server logs the request with the reason."""
    request.set_reason(f"{problem.text}{problem.note}")
    ask = (b"www-authenticate", b'Basic realm="AlpineBits", charset="UTF-8"')
    return plain(problem.status, problem.text, *((ask,) if problem.status == 401 else ()))


def plain(status: int, message: str, *headers: tuple[bytes, bytes]) -> Reply:
    """An error as the protocol requires it: a line of text after "ERROR:"."""
    return Reply(status, f"ERROR:{message}".encode(), TEXT, (*HEADERS, *headers))
