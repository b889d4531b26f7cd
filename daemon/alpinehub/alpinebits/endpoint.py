"""POST /api/alpinebits. What is wrong is found in this order, and the first finding is the answer:

credentials (401), protocol version header missing or malformed (400), body too large (413),
Content-Encoding or Content-Type (415, 400), action missing (400), version not supported (400; not
looked at for a handshake, which is how a client finds out), action unknown in that version (400),
XML, then structure (400), then everything about the data, as OTA errors with status 200.

Nobody without credentials can make the server read a body, let alone parse one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from alpinehub.accounts import Account, TooManyLogins, authenticate
from alpinehub.alpinebits import answer, delivery, form, reading, refusal, render
from alpinehub.alpinebits.handshake import NoCapabilities, intersect
from alpinehub.alpinebits.message import (
    read_acknowledgement,
    read_ping,
    read_read_request,
)
from alpinehub.alpinebits.moment import moment_us
from alpinehub.alpinebits.refusal import Refusal
from alpinehub.alpinebits.version import (
    ACKNOWLEDGE,
    HANDSHAKE,
    READ,
    VERSIONS,
    Version,
    well_formed,
)
from alpinehub.directory import Hotel
from cordata import Context, StoreUnavailable, fields

T = TypeVar("T")

_log = logging.getLogger("alpinehub.alpinebits")

#: Larger bodies are parsed in a thread, so that other clients of this worker do not wait.
_THREAD_BYTES = 64 * 1024
#: With every response: from now on the client may send its bodies packed.
_HEADERS = {"X-AlpineBits-Server-Accept-Encoding": "gzip"}


async def alpinebits(request: Request) -> Response:
    """Answer one request of hotel software."""
    ctx: Context = request.state.cordata
    try:
        xml = await _answer(ctx, request)
    except Refusal as problem:
        return _refuse(problem)
    except TooManyLogins:  # 429 instead of the 401 while somebody tries passwords
        return _text(429, "too many passwords wait to be checked; try again", {"Retry-After": "5"})
    except StoreUnavailable as error:
        again = {"Retry-After": str(max(1, round(error.retry_after_s)))}
        return _text(503, "the server cannot take requests at the moment; try again", again)
    except ClientDisconnect:
        return _text(400, "the request was cut off")
    except Exception:  # noqa: BLE001 - the boundary of one request
        _log.exception("a request failed", extra=fields(status=500))
        return _text(500, "the server failed; the request was not processed")
    return Response(xml, media_type="text/xml; charset=utf-8", headers=_HEADERS)


async def _answer(ctx: Context, request: Request) -> bytes:
    account = await _log_in(ctx, request)
    name = _version_name(request)
    sent = await _read_form(request)
    if not sent.action:
        raise Refusal(400, refusal.BAD_ACTION)
    if sent.action == HANDSHAKE:
        return await _handshake(_document(sent))
    version = VERSIONS.get(name)
    if version is None:
        raise Refusal(400, refusal.BAD_VERSION)
    if sent.action not in version.actions:
        raise Refusal(400, refusal.BAD_ACTION)
    act = {READ: _read, ACKNOWLEDGE: _acknowledge}[sent.action]
    return await act(ctx, account, _document(sent), version)


# Transport


async def _log_in(ctx: Context, request: Request) -> Account:
    credentials = _credentials(request.headers.get("authorization", ""))
    account = await authenticate(ctx, *credentials) if credentials else None
    if account is None:
        raise Refusal(401, refusal.BAD_CREDENTIALS)
    return account


def _credentials(header: str) -> tuple[str, str] | None:
    """User and password of a Basic Authorization header (RFC 7617), None when it is not one.

    UTF-8 is what we ask for; what is not UTF-8 is read as Latin-1, as old clients mean it.
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


def _version_name(request: Request) -> str:
    name = request.headers.get("x-alpinebits-clientprotocolversion", "").strip()
    if not name:
        raise Refusal(400, "the header X-AlpineBits-ClientProtocolVersion is missing")
    if not well_formed(name):
        raise Refusal(400, refusal.BAD_VERSION)
    return name


async def _read_form(request: Request) -> form.Form:
    received = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            received += chunk
            if len(received) > form.MAX_BODY_BYTES:
                raise Refusal(413, "the body is too large")
    headers = request.headers
    body = form.unpack(bytes(received), headers.get("content-encoding", ""))
    return await _parse(body, lambda: form.parse_form(headers.get("content-type", ""), body))


def _document(sent: form.Form) -> bytes:
    if sent.request is None:
        raise Refusal(400, "the field request is missing")
    return sent.request


async def _parse(data: bytes, read: Callable[[], T]) -> T:
    if len(data) > _THREAD_BYTES:
        return await asyncio.to_thread(read)
    return read()


def _refuse(problem: Refusal) -> Response:
    if problem.status == 401:  # anybody's: the connection layer's own line is enough
        ask = {"WWW-Authenticate": 'Basic realm="AlpineBits", charset="UTF-8"'}
        return _text(problem.status, problem.text, ask)
    _log.info("refused: %s", problem.text, extra=fields(status=problem.status))
    return _text(problem.status, problem.text)


def _text(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(
        f"ERROR:{message}",
        status_code=status,
        media_type="text/plain; charset=utf-8",
        headers=_HEADERS | (headers or {}),
    )


# Actions


async def _handshake(data: bytes) -> bytes:
    echo = await _parse(data, lambda: read_ping(data))
    try:
        return answer.ping(intersect(echo), echo)
    except NoCapabilities:
        text = "EchoData is not the JSON of a handshake"
        return _error("OTA_PingRS", answer.INVALID_VALUE, text)


def _error(root: str, code: int, text: str) -> bytes:
    """An OTA error. Its status is 200, so that the connection layer has no line for it."""
    _log.warning("answered with error %d: %s", code, text, extra=fields(ota_code=code))
    return answer.error(root, code, text)


async def _read(ctx: Context, account: Account, data: bytes, version: Version) -> bytes:
    wanted = await _parse(data, lambda: read_read_request(data, version))
    hotel = _hotel(account, wanted.hotel_code, wanted.hotel_name)
    if hotel is None:
        return _error("OTA_ResRetrieveRS", answer.INVALID_HOTEL_CODE, "Invalid hotel code")
    since_us = moment_us(wanted.start, hotel.time_zone) if wanted.start is not None else None
    return render.response(await delivery.fetch(ctx, account.id, hotel, version, since_us=since_us))


def _hotel(account: Account, code: str | None, name: str | None) -> Hotel | None:
    """The hotel of this user that is meant. The code decides where it is given; a name must be
    that of one of his hotels only.
    """
    if code is not None:
        return account.hotel(code)
    named = [hotel for hotel in account.hotels if hotel.name == name]
    return named[0] if len(named) == 1 else None


async def _acknowledge(ctx: Context, account: Account, data: bytes, version: Version) -> bytes:
    if len(data) > reading.LARGE_BYTES:
        told = await reading.read(ctx, data, version)
    else:
        told = await _parse(data, lambda: read_acknowledgement(data, version))
    unknown = await delivery.acknowledge(ctx, account.id, told)
    return answer.acknowledged(unknown if version.acknowledgement_warnings else ())
