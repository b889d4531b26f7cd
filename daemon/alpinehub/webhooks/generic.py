"""POST /api/webhook/generic: the hub's own JSON, strict. Whoever can choose sends this.

The order of checks is the order of what may be told to whom: without a valid secret everything
is one 401; then the form (415, 413, 400), the hotel (404), the fields (422).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b

from alpinehub import counts
from alpinehub.directory import directory_of
from alpinehub.intake import Arrival, Order, Unknown, take_in
from alpinehub.models import Source
from alpinehub.webhooks import authentication
from alpinehub.webhooks.endpoint import Call, kept_headers, require_json
from alpinehub.webhooks.http_error import HttpError, Problem, invalid
from alpinehub.webhooks.normalise import normalise
from alpinehub.webhooks.payload import Payload, parse
from cordata import KeyReused, StoreUnavailable, request_id

KIND = "generic"
_KEY = re.compile(rb"[\x21-\x7e]{1,200}")


async def generic(call: Call) -> bytes:
    """Take in one submission; the body of the 200. Raises: HttpError, StoreUnavailable."""
    directory = directory_of(call.ctx)
    snapshot = directory.remembered or await directory.current()
    headers = call.headers
    secret = headers.get(b"x-webhook-secret")
    signature = headers.get(b"x-signature-256")
    if secret is None and signature is None:
        raise authentication.unauthorized()
    sources: Sequence[Source] = ()
    if secret is not None:
        sources = authentication.by_secret(call.ctx, snapshot, KIND, secret)
    require_json(headers)
    body = await call.body()
    if signature is not None:
        if secret is None:
            sources = authentication.candidates(
                snapshot, KIND, call.query, body, lambda: _hotel_code(body)
            )
        sources = authentication.by_signature(call.ctx, sources, signature, body)
    try:
        return await _take_in(call, sources, body)
    except HttpError:
        await _count_refused(call, sources)
        raise


async def _count_refused(call: Call, sources: Sequence[Source]) -> None:
    """For the report of the hotel, where the secret is one hotel's."""
    hotels = {source.hotel.id for source in sources}
    if len(hotels) != 1:
        return
    with suppress(StoreUnavailable):  # the refusal is the answer
        await call.ctx.store.run(partial(counts.add, hotel_id=hotels.pop(), kind="errors"))


def _hotel_code(body: bytes) -> str:
    """The hotel_code of a body that nobody has vouched for yet; "" when it has none."""
    try:
        return (parse(body).payload.hotel_code or "").strip()
    except HttpError:
        return ""


async def _take_in(call: Call, sources: Sequence[Source], body: bytes) -> bytes:
    parsed = parse(body)
    key = _idempotency_key(call.headers)
    source = _source_of_hotel(sources, parsed.payload.hotel_code)
    plain = b"\\" not in body and b"\xef\xbf" not in body
    submission = normalise(parsed, plain=plain)
    arrival = Arrival(
        source=source,
        data=submission.data,
        external_id=submission.external_id,
        order=_order(parsed.payload),
        incomplete=submission.lacks,
        body=body,
        headers=kept_headers(call.headers),
        request_id=request_id.get(),
        key=key,
        body_hash=blake2b(body, digest_size=16).hexdigest() if key else "",
    )
    try:
        stored = await take_in(call.ctx.store, arrival, now_us=call.ctx.now_us())
    except KeyReused:
        message = "This Idempotency-Key came with another body before."
        raise HttpError(422, "idempotency_key_reused", message) from None
    except Unknown:
        unknown = Problem("external_id", "not known; a cancellation of it must be complete")
        raise invalid([unknown, *submission.lacks]) from None
    return b'{"id":"%s"}' % stored.reservation_id.encode()


def _order(payload: Payload) -> Order:
    sent_at = None if payload.sent_at is None else round(payload.sent_at.timestamp() * 1_000_000)
    return Order(sequence=payload.sequence, sent_at=sent_at)


def _source_of_hotel(sources: Sequence[Source], hotel_code: str | None) -> Source:
    """The source whose hotel the payload names. Raises: HttpError 404.

    A payload without a usable hotel_code is told so with all its other problems, later.
    """
    if hotel_code is None or not (code := hotel_code.strip()):
        return sources[0]
    for source in sources:
        if source.hotel.code == code:
            return source
    raise HttpError(404, "unknown_hotel", "This source has no hotel of that hotel_code.")


def _idempotency_key(headers: dict[bytes, bytes]) -> str | None:
    key = headers.get(b"idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        problem = Problem("Idempotency-Key", "expected 1 to 200 visible ASCII characters")
        raise invalid([problem])
    return key.decode()
