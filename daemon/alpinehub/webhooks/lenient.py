"""POST /api/webhook/wix, /google and /form: senders that nobody can teach, so they are not refused.

    POST .... one commit: the row `received`, the event inbox.received .... answer
    event ... interpretation (inbox/processing.py): mapped, or in the review list, or set aside

Only who is not known (401), what is too large (413), packed or no form at all (415), or empty (400)
is refused; for the rest a sender could do nothing about the answer, but an operator can. The
address of a form is public: there are limits for what is sent to it (429, form_limit.py), what a
robot filled in is counted only, and a proof of work may be asked for (403).

A crash between the two loses nothing: the event is delivered again, and what none came for is taken
up by the primary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

from alpinehub import counts
from alpinehub.directory import Snapshot, directory_of
from alpinehub.models import Source
from alpinehub.multipart import media_type
from alpinehub.webhooks import form_limit
from alpinehub.webhooks import google as leads
from alpinehub.webhooks.authentication import one_by_secret, unauthorized
from alpinehub.webhooks.endpoint import Call, HttpError, Reply, kept_headers, require_plain
from alpinehub.webhooks.form import read_fields
from alpinehub.webhooks.form_limit import Bucket, LimitReached
from alpinehub.webhooks.submission import Unreadable
from alpinehub.webhooks.thanks import AGAIN, WAIT, not_taken, thanks
from cordata import Context, Tx, request_id

EVENT = "inbox.received"


async def receive(ctx: Context, source: Source, body: bytes, *, headers: str) -> int:
    """Store what came; its number in the inbox, after the commit. Raises: StoreUnavailable.

    `headers`: JSON of those worth keeping.
    """
    given = request_id.get()
    return await ctx.run(lambda tx: store(tx, source, body, headers=headers, given=given))


async def store(tx: Tx, source: Source, body: bytes, *, headers: str, given: str) -> int:
    """The unit of `receive`. `given`: the id of the request."""
    row = await tx.fetch_one(
        "inbox_receive",
        source_id=source.id,
        now=tx.now_us,
        headers=headers,
        body=body,
        request_id=given,
    )
    assert row is not None
    inbox_id = int(row["id"])
    await tx.publish(EVENT, {"inbox_id": inbox_id, "source_id": source.id})
    return inbox_id


#: The hidden field; its name begins with "_": it is no answer of a guest's.
PROOF_FIELD = "_proof"
#: A proof counts this long before and after its SECONDS: clocks of guests are wrong.
PROOF_VALID_S = 86_400
_PROOF = re.compile(r"([0-9]{1,12})\.[A-Za-z0-9_-]{1,64}\.[0-9]{1,16}")


def is_proof(proof: str, secret: str, bits: int, *, now_s: int) -> bool:
    """Whether the work was done, for this form, and lately.

    A proof is `SECONDS.SALT.COUNTER`: the SHA-256 of `SECRET.SECONDS.SALT.COUNTER` (SECRET is the
    last part of the form's address) begins with as many zero bits as the source's option
    `proof_of_work` says: cheap for one guest, dear for a robot. A script of the page finds such a
    COUNTER (packaging/examples/form.html). Each proof counts once (form_limit.py).
    """
    match = _PROOF.fullmatch(proof)
    if match is None or abs(int(match[1]) - now_s) > PROOF_VALID_S:
        return False
    digest = sha256(f"{secret}.{proof}".encode()).digest()
    return int.from_bytes(digest, "big") >> (256 - bits) == 0


_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


async def wix(call: Call) -> bytes:
    """POST /wix/{hotel}/{secret}; or /wix/{hotel} with X-Webhook-Secret."""
    source = _source_of_path(call, await _snapshot(call), "wix")
    require_plain(call.headers)
    await receive(call.ctx, source, await _body(call), headers=kept_headers(call.headers))
    return b'{"status":"received"}'


async def google(call: Call) -> bytes:
    """POST /google or /google/{hotel}; the secret is the google_key of the body."""
    snapshot = await _snapshot(call)
    body = await _body(call)
    try:
        key, kept = leads.take_key(body)
    except Unreadable:
        raise unauthorized("A valid secret is required.") from None
    secret = key.encode("utf-8", "surrogatepass")
    source = one_by_secret(call.ctx, snapshot, "google", secret, call.rest.strip("/") or None)
    await receive(call.ctx, source, kept, headers=kept_headers(call.headers))
    return b"{}"


async def form(call: Call) -> Reply:
    """POST /form/{hotel}/{secret}: the action of an HTML form."""
    source = _source_of_path(call, await _snapshot(call), "form")
    buckets = form_limit.buckets_of(call.ctx, source, call.client)
    refusals = form_limit.refusals_of(call.ctx)
    if known := refusals.find(buckets, call.ctx.now_us()):
        raise _too_many(call, source, known)
    require_plain(call.headers)
    content_type = call.headers.get(b"content-type", b"").decode("latin-1")
    if media_type(content_type) not in _FORMS:
        raise HttpError(415, "unsupported_type", f"The body must be {' or '.join(_FORMS)}.")
    body = await _body(call)
    try:
        fields = read_fields(body, content_type)
    except Unreadable:  # a person looks at it
        fields = {}
    if source.options.proof_of_work:
        buckets = [*buckets, _proof(call, source, fields)]
    refusal = await call.ctx.run(_FormUnit(call, source, body, buckets, fields).store)
    if refusal is not None:
        refusals.tell(call.ctx, source, refusal, call.client)
        if refusal.bucket.of == "proof":
            raise _no_proof(call, source)
        refusals.remember(refusal, call.ctx.now_us())
        raise _too_many(call, source, refusal)
    return thanks(source, call.headers)


class _FormUnit:
    """The unit of one submission of a form."""

    __slots__ = ("_body", "_buckets", "_given", "_headers", "_source", "_trapped")

    def __init__(
        self,
        call: Call,
        source: Source,
        body: bytes,
        buckets: Sequence[Bucket],
        fields: Mapping[str, str],
    ) -> None:
        self._source = source
        self._body = body
        self._buckets = buckets
        self._headers = kept_headers(call.headers)
        self._given = request_id.get()
        honeypot = source.options.honeypot
        self._trapped = bool(honeypot) and bool(fields.get(honeypot, "").strip())

    async def store(self, tx: Tx) -> LimitReached | None:
        """Store it; of what a robot filled in a count. The refusal, if a bucket is empty."""
        refusal = await form_limit.take_all(tx, self._buckets)
        if refusal is not None:
            return refusal
        if self._trapped:
            await counts.add(tx, self._source.hotel.id, "spam")
        else:
            given = self._given
            await store(tx, self._source, self._body, headers=self._headers, given=given)
        return None


def _proof(call: Call, source: Source, fields: Mapping[str, str]) -> Bucket:
    """What lets the proof of work count once. Raises: HttpError 403 without a proof."""
    proof = fields.get(PROOF_FIELD, "").strip()
    header = call.headers.get(b"x-webhook-secret")
    secret = call.rest.rpartition("/")[2] if header is None else header.decode("latin-1")
    bits, now_s = int(source.options.proof_of_work), call.ctx.now_us() // 1_000_000
    if not is_proof(proof, secret, bits, now_s=now_s):
        raise _no_proof(call, source)
    return form_limit.once(call.ctx, source, proof, 2 * PROOF_VALID_S * 1_000_000)


def _no_proof(call: Call, source: Source) -> HttpError:
    message = "The form has no valid proof of work, or was sent before."
    return not_taken(HttpError(403, "proof_required", message), source, call.headers, AGAIN)


def _too_many(call: Call, source: Source, refusal: LimitReached) -> HttpError:
    wait_s = max(1, -(-(refusal.until_us - call.ctx.now_us()) // 1_000_000))
    of = "this address" if refusal.bucket.of == "address" else "this form"
    refused = HttpError(
        429,
        "too_many",
        f"Too many submissions of {of}; send it again in {wait_s} s.",
        headers=((b"retry-after", b"%d" % wait_s),),
    )
    return not_taken(refused, source, call.headers, WAIT)


async def _snapshot(call: Call) -> Snapshot:
    directory = directory_of(call.ctx)
    return directory.remembered or await directory.current()


def _source_of_path(call: Call, snapshot: Snapshot, kind: str) -> Source:
    """The source that a path names. Raises: HttpError 401.

    A hotel's code may have a "/", a secret in a path has none.
    """
    header = call.headers.get(b"x-webhook-secret")
    if header is not None:
        return one_by_secret(call.ctx, snapshot, kind, header, call.rest.strip("/"))
    hotel, _, secret = call.rest.rpartition("/")
    return one_by_secret(call.ctx, snapshot, kind, secret.encode("utf-8", "replace"), hotel)


async def _body(call: Call) -> bytes:
    body = await call.body()
    if not body.strip():
        raise HttpError(400, "empty", "The body is empty.")
    return body
