"""Checks of the transport: credentials, headers, the form, compression, malformed XML."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

from alpinehub.alpinebits.action import HANDSHAKE, READ
from alpinehub.alpinebits.document import NAMESPACE
from alpinehub.alpinebits_client import message
from alpinehub.alpinebits_client.client import accepts_gzip, encode_multipart
from alpinehub.alpinebits_client.http import HttpResponse
from alpinehub.alpinebits_client.message import HotelName
from alpinehub.alpinebits_client.offer import offer
from alpinehub.check.peer import NO_HOTEL, NO_VERSION, Peer
from alpinehub.check.suite import PASSED, Check, Result, failed, skipped, warning

_FORM = "multipart/form-data; boundary=B"
_BOMB_BYTES, _LARGE_BYTES, _DEPTH = 64 * 1024 * 1024, 3 * 1024 * 1024, 20_000
_PATIENCE_S = 5.0


def refused(answer: HttpResponse, *statuses: int) -> Result:
    """Passed for an error of the transport: one of these statuses, and a text with "ERROR:"."""
    if answer.status not in statuses:
        due = " or ".join(map(str, statuses))
        return failed(f"HTTP {answer.status}, not {due}")
    if not answer.body.startswith(b"ERROR:"):
        return failed(f"HTTP {answer.status}, but its body does not begin with ERROR:")
    if not answer.headers.get("content-type", "").startswith("text/plain"):
        return warning("the error's Content-Type is not text/plain")
    return PASSED


def answered(answer: HttpResponse) -> Result:
    """Passed if the request was accepted."""
    if answer.status != 200 or answer.body.startswith(b"ERROR:"):
        return failed(f"HTTP {answer.status}, but the request must be accepted")
    return PASSED


async def no_credentials(peer: Peer) -> Result:
    """A request without the header Authorization."""
    return _asks_for_basic(await peer.harmless({"Authorization": None}))


async def wrong_password(peer: Peer) -> Result:
    """Only one attempt: servers block a client after several."""
    token = "bm9ib2R5LXgxOm5vdC1oaXMtcGFzc3dvcmQ="  # an account that does not exist
    return _asks_for_basic(await peer.harmless({"Authorization": f"Basic {token}"}))


def _asks_for_basic(answer: HttpResponse) -> Result:
    result = refused(answer, 401)
    if result.outcome == "failed":
        return result
    if not answer.headers.get("www-authenticate", "").lower().startswith("basic"):
        return failed("401 without WWW-Authenticate: Basic")
    return result


async def no_version(peer: Peer) -> Result:
    """A request without the version header."""
    return refused(await peer.harmless({"X-AlpineBits-ClientProtocolVersion": None}), 400)


async def unknown_version(peer: Peer) -> Result:
    """A data action in a version that does not exist (a handshake would be answered)."""
    headers = {"X-AlpineBits-ClientProtocolVersion": NO_VERSION}
    return refused(await peer.call(READ, _read(), headers), 400)


async def no_client_id(peer: Peer) -> Result:
    """X-AlpineBits-ClientID is optional."""
    return answered(await peer.harmless({"X-AlpineBits-ClientID": None}))


async def some_client_id(peer: Peer) -> Result:
    """X-AlpineBits-ClientID may be any text."""
    return answered(await peer.harmless({"X-AlpineBits-ClientID": "a client, 1.0"}))


async def unknown_action(peer: Peer) -> Result:
    """An action that does not exist."""
    return refused(await peer.call("OTA_Nothing:AtAll", _read()), 400)


async def other_case(peer: Peer) -> Result:
    """Actions are case-sensitive."""
    return refused(await peer.call(READ.lower(), _read()), 400)


async def no_action(peer: Peer) -> Result:
    """A form without the field `action`."""
    body = b'--B\r\nContent-Disposition: form-data; name="request"\r\n\r\nx\r\n--B--\r\n'
    return refused(await peer.post(body, {"Content-Type": _FORM}), 400)


async def get(peer: Peer) -> Result:
    """GET is not allowed."""
    answer = await peer.post(b"", {}, method="GET")
    return PASSED if 400 <= answer.status < 500 else failed(f"HTTP {answer.status} to a GET")


async def not_a_form(peer: Peer) -> Result:
    """XML without a form around it."""
    return refused(await peer.post(_read(), {"Content-Type": "text/xml"}), 400, 415)


async def cut_form(peer: Peer) -> Result:
    """A form whose end is missing."""
    content_type, body = encode_multipart(READ, _read())
    return refused(await peer.post(body[:-40], {"Content-Type": content_type}), 400)


async def file_part(peer: Peer) -> Result:
    """`request` as a file, as real hotel software sends it."""
    action, document = _harmless(peer)
    head = b'--B\r\nContent-Disposition: form-data; name="'
    body = head + b'action"\r\n\r\n' + action.encode() + b"\r\n" + head
    body += b'request"; filename="request.xml"\r\nContent-Type: text/xml\r\n\r\n' + document
    return answered(await peer.post(body + b"\r\n--B--\r\n", {"Content-Type": _FORM}))


async def plain_field(peer: Peer) -> Result:
    """`request` as a field."""
    action, document = _harmless(peer)
    return answered(await peer.call(action, document))


async def urlencoded(peer: Peer) -> Result:
    """A form that the protocol does not require, but some clients send."""
    action, document = _harmless(peer)
    body = urlencode({"action": action, "request": document.decode()}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await peer.post(body, headers)
    if answer.status >= 500:
        return failed(f"HTTP {answer.status} to an urlencoded form")
    return PASSED if answered(answer) is PASSED else warning("urlencoded forms are refused")


async def broken_xml(peer: Peer) -> Result:
    """XML that ends too early."""
    return refused(await peer.call(READ, _read()[:-5]), 400)


async def invalid_xml(peer: Peer) -> Result:
    """XML that the schema does not allow."""
    document = _read().replace(b"HotelReadRequest", b"HotelWriteRequest")
    return refused(await peer.call(READ, document), 400)


async def other_root(peer: Peer) -> Result:
    """The document of another action."""
    return refused(await peer.call(READ, message.notif_report([("14", "x")], {})), 400)


async def entity(peer: Peer) -> Result:
    """An internal entity, which must not be expanded."""
    return refused(await peer.call(READ, _with_dtd("<!ENTITY e 'expanded'>")), 400)


async def external_entity(peer: Peer) -> Result:
    """An external entity, which must not be fetched; a local port notices if it is."""
    fetched = asyncio.Event()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fetched.set()
        writer.close()

    async with await asyncio.start_server(note, "127.0.0.1", 0) as canary:
        port = canary.sockets[0].getsockname()[1]
        dtd = f"<!ENTITY e SYSTEM 'http://127.0.0.1:{port}/e'>"
        answer = await peer.call(READ, _with_dtd(dtd))
        await asyncio.sleep(0)
    return failed("the server fetched it") if fetched.is_set() else refused(answer, 400)


async def packed(peer: Peer) -> Result:
    """A body compressed by gzip is accepted if the server announces gzip."""
    first = await peer.harmless()
    if not accepts_gzip(first):
        return skipped("the server does not announce gzip")
    document = _read()
    plain = await peer.call(READ, document)
    compressed = await peer.call(READ, document, gzip=True)
    if plain.status != compressed.status:
        return failed(f"HTTP {compressed.status} with gzip, {plain.status} without")
    return PASSED


async def not_packed(peer: Peer) -> Result:
    """A body that is announced as gzip and is not."""
    content_type, body = encode_multipart(READ, _read())
    headers = {"Content-Type": content_type, "Content-Encoding": "gzip"}
    return refused(await peer.post(body, headers), 400, 415)


async def bomb(peer: Peer) -> Result:
    """A small body that is large when it is decompressed."""
    if not accepts_gzip(await peer.harmless()):
        return skipped("the server does not announce gzip")
    return _bounded(await peer.call(READ, b" " * _BOMB_BYTES, gzip=True))


async def large(peer: Peer) -> Result:
    """A body of 3 MB is answered: accepted or refused."""
    answer = await peer.call(READ, _read() + b" " * _LARGE_BYTES)
    return failed(f"HTTP {answer.status}") if answer.status >= 500 else PASSED


async def deep(peer: Peer) -> Result:
    """XML of 20,000 levels."""
    return _bounded(await peer.call(READ, b"<a>" * _DEPTH + b"</a>" * _DEPTH))


def _bounded(answer: HttpResponse) -> Result:
    if answer.took_ms > _PATIENCE_S * 1000:
        return failed(f"it took {answer.took_ms / 1000:.1f} s to refuse it")
    return refused(answer, 400, 413)


def _harmless(peer: Peer) -> tuple[str, bytes]:
    if peer.protocol.housekeeping:
        return READ, _read()
    return HANDSHAKE, message.ping(offer())


def _read() -> bytes:
    """A request for a hotel that does not exist, so that no guest request is delivered."""
    return message.read_requests(HotelName(code=NO_HOTEL))


def _with_dtd(inside: str) -> bytes:
    return (
        f'<?xml version="1.0"?><!DOCTYPE OTA_ReadRQ [{inside}]>'
        f'<OTA_ReadRQ xmlns="{NAMESPACE}" Version="1.001"><ReadRequests>'
        '<HotelReadRequest HotelCode="X" HotelName="&e;"/></ReadRequests></OTA_ReadRQ>'
    ).encode()


CHECKS = (
    Check("transport.no-credentials", "no credentials: 401, WWW-Authenticate", no_credentials),
    Check("transport.wrong-password", "wrong credentials: 401", wrong_password),
    Check("transport.no-version", "version header missing: 400", no_version),
    Check("transport.unknown-version", "unknown version: 400", unknown_version),
    Check("transport.no-client-id", "the client id is optional", no_client_id),
    Check("transport.client-id", "any client id is accepted", some_client_id),
    Check("transport.unknown-action", "unknown action: 400", unknown_action),
    Check("transport.action-case", "actions are case-sensitive: 400", other_case),
    Check("transport.no-action", "action missing: 400", no_action),
    Check("transport.get", "GET is refused", get),
    Check("transport.not-a-form", "a body that is not a form: 415 or 400", not_a_form),
    Check("transport.cut-form", "a form that is cut off: 400", cut_form),
    Check("transport.plain-field", "request as a field", plain_field),
    Check("transport.file-part", "request as a file", file_part),
    Check("transport.urlencoded", "request in an urlencoded form", urlencoded),
    Check("transport.broken-xml", "XML that does not parse: 400", broken_xml),
    Check("transport.invalid-xml", "XML that breaks the schema: 400", invalid_xml),
    Check("transport.other-root", "the document of another action: 400", other_root),
    Check("transport.entity", "a document type declaration: 400", entity),
    Check("transport.external-entity", "external entities are not fetched", external_entity),
    Check("transport.gzip", "gzip is accepted if announced", packed),
    Check("transport.not-gzip", "announced as gzip but is not: 400 or 415", not_packed),
    Check("transport.gzip-bomb", "64 MB compressed to 64 KB: refused", bomb, stress=True),
    Check("transport.large", "3 MB are answered", large, stress=True),
    Check("transport.deep", "XML of 20,000 levels: refused", deep, stress=True),
)
