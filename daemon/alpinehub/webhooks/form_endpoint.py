"""The endpoint of HTML forms, posted by a browser.

The URL of a form is public. So the number of submissions is limited (429, form_limit.py), a
submission that a robot filled in is only counted, and a proof of work may be required (403).
"""

from __future__ import annotations

import re
from functools import partial
from hashlib import sha256

from alpinehub.asgi import Reply
from alpinehub.form_body import FORM_TYPES, media_type
from alpinehub.models import Source
from alpinehub.webhooks import form_limit
from alpinehub.webhooks.endpoint import WebhookError, WebhookRequest, not_stored, require_plain
from alpinehub.webhooks.form_limit import Bucket, LimitReached
from alpinehub.webhooks.interpretation import Received
from alpinehub.webhooks.receive import read_body, receive, received_of, source_of_path
from alpinehub.webhooks.submission import Unreadable
from alpinehub.webhooks.thanks import not_taken, thanks
from cordata import StoreUnavailable

#: A proof is valid this long before and after its SECONDS: clocks of guests may be wrong.
PROOF_VALID_S = 86_400
_PROOF = re.compile(r"([0-9]{1,12})\.[A-Za-z0-9_-]{1,64}\.[0-9]{1,16}")


async def post(request: WebhookRequest) -> Reply:
    """POST /form/{hotel}/{secret}: the action of an HTML form."""
    source = await source_of_path(request, "form")
    try:
        await _take(request, source)
    except WebhookError as error:
        raise not_taken(error, source, request.headers) from None
    except StoreUnavailable as error:
        raise not_taken(not_stored(error), source, request.headers) from error
    return thanks(source, request.headers)


async def _take(request: WebhookRequest, source: Source) -> None:
    """Check and store a submission. Raises: WebhookError, StoreUnavailable."""
    buckets = form_limit.buckets_of(request.ctx, source, request.client)
    refusals = form_limit.refusals_of(request.ctx)
    if known := refusals.find(buckets, request.ctx.now_us()):
        raise _too_many(request, known)
    require_plain(request.headers)
    content_type = request.headers.get(b"content-type", b"").decode("latin-1")
    if media_type(content_type) not in FORM_TYPES:
        raise WebhookError(415, "unsupported_type", f"The body must be {' or '.join(FORM_TYPES)}.")
    received = received_of(request, source, await read_body(request))
    proof = _proof(request, source, received) if source.options.proof_of_work else None
    # Before the interpretation, which takes much longer; and not in the unit that stores: it may
    # wait for a customer's row, and other submissions of the form would wait for their token.
    refusal = await request.ctx.store.run(partial(form_limit.take_all, buckets=buckets))
    if refusal is not None:
        refusals.alert(request.ctx, source, refusal, request.client)
        refusals.remember(refusal)
        raise _too_many(request, refusal)
    if not await receive(request, source, received, proof):
        raise _no_proof()


def _proof(request: WebhookRequest, source: Source, received: Received) -> Bucket:
    """The bucket that makes a proof of work valid once.

    Raises: WebhookError 403 without a proof.
    """
    try:
        proof = received.submission.proof
    except Unreadable:
        raise _no_proof() from None
    header = request.headers.get(b"x-webhook-secret")
    secret = request.rest.rpartition("/")[2] if header is None else header.decode("latin-1")
    bits, now_s = int(source.options.proof_of_work), request.ctx.now_us() // 1_000_000
    if not is_proof(proof, secret, bits, now_s=now_s):
        raise _no_proof()
    return form_limit.bucket_of_proof(request.ctx, source, proof, 2 * PROOF_VALID_S * 1_000_000)


def _no_proof() -> WebhookError:
    message = "The form has no valid proof of work, or was sent before."
    return WebhookError(403, "proof_required", message)


def _too_many(request: WebhookRequest, refusal: LimitReached) -> WebhookError:
    wait_s = max(1, -(-(refusal.until_us - request.ctx.now_us()) // 1_000_000))
    of = "this address" if refusal.bucket.kind == "address" else "this form"
    return WebhookError(
        429,
        "too_many",
        f"Too many submissions of {of}; send it again in {wait_s} s.",
        headers=((b"retry-after", b"%d" % wait_s),),
    )


def is_proof(proof: str, secret: str, bits: int, *, now_s: int) -> bool:
    """Whether a proof of work is correct, for this form, and not too old.

    A proof is `SECONDS.SALT.COUNTER`: the SHA-256 of `SECRET.SECONDS.SALT.COUNTER` (SECRET is the
    last part of the form's address) begins with as many zero bits as the source's option
    `proof_of_work` says: cheap for one guest, expensive for a robot. A script of the page finds
    such a COUNTER (packaging/examples/form.html). Each proof counts once (form_limit.py).
    """
    match = _PROOF.fullmatch(proof)
    if match is None or abs(int(match[1]) - now_s) > PROOF_VALID_S:
        return False
    digest = sha256(f"{secret}.{proof}".encode()).digest()
    return int.from_bytes(digest, "big") >> (256 - bits) == 0
