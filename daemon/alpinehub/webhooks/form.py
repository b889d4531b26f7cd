"""HTML forms: application/x-www-form-urlencoded or multipart, posted by a browser.

The URL of a form is public. So the number of submissions is limited (429, form_limit.py), a
submission that a robot filled in is only counted, and a proof of work may be required (403). The
encoding is the one that the browser names, else UTF-8, else windows-1252.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from alpinehub import counts
from alpinehub.asgi import Reply
from alpinehub.form_body import FORM_TYPES, Broken, Fault, media_type, read_parts
from alpinehub.models import Source
from alpinehub.webhooks import form_limit
from alpinehub.webhooks.endpoint import WebhookError, WebhookRequest, require_plain
from alpinehub.webhooks.form_limit import Bucket, LimitReached
from alpinehub.webhooks.receive import read_body, source_of_path, store
from alpinehub.webhooks.submission import FormField, Submission, Unreadable, bounded, check_count
from alpinehub.webhooks.thanks import AGAIN, WAIT, not_taken, thanks
from alpinehub.webhooks.values import line
from cordata import Tx

_MAX_NAME = 128
_MAX_PARTS = 1000
#: Codes of the review list for a body that cannot be read.
_CODES: dict[Fault, str] = {
    "no_boundary": "no_boundary", "cut_off": "cut_off", "too_many_parts": "too_many_fields",
}  # fmt: skip
_UTM = ("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_id")
#: The hidden field of the proof of work; names that begin with "_" are not answers of the guest.
PROOF_FIELD = "_proof"
#: A proof is valid this long before and after its SECONDS: clocks of guests may be wrong.
PROOF_VALID_S = 86_400
_PROOF = re.compile(r"([0-9]{1,12})\.[A-Za-z0-9_-]{1,64}\.[0-9]{1,16}")


async def post(request: WebhookRequest) -> Reply:
    """POST /form/{hotel}/{secret}: the action of an HTML form."""
    source = await source_of_path(request, "form")
    buckets = form_limit.buckets_of(request.ctx, source, request.client)
    refusals = form_limit.refusals_of(request.ctx)
    if known := refusals.find(buckets, request.ctx.now_us()):
        raise _too_many(request, source, known)
    require_plain(request.headers)
    content_type = request.headers.get(b"content-type", b"").decode("latin-1")
    if media_type(content_type) not in FORM_TYPES:
        raise WebhookError(415, "unsupported_type", f"The body must be {' or '.join(FORM_TYPES)}.")
    body = await read_body(request)
    try:
        fields = read_fields(body, content_type)
    except Unreadable:  # it goes to the review list
        fields = {}
    if source.options.proof_of_work:
        buckets = [*buckets, _proof(request, source, fields)]
    honeypot = source.options.honeypot  # "": none
    is_robot = bool(honeypot and fields.get(honeypot, "").strip())

    async def unit(tx: Tx) -> LimitReached | None:
        """Store the submission, or count it if a robot filled it in, unless a bucket is empty."""
        refusal = await form_limit.take_all(tx, buckets)
        if refusal is None and is_robot:
            await counts.add(tx, source.hotel.id, "spam")
        elif refusal is None:
            await store(tx, request, source, body)
        return refusal

    refusal = await request.ctx.run(unit)
    if refusal is not None:
        refusals.alert(request.ctx, source, refusal, request.client)
        if refusal.bucket.of == "proof":
            raise _no_proof(request, source)
        refusals.remember(refusal)
        raise _too_many(request, source, refusal)
    return thanks(source, request.headers)


def _proof(request: WebhookRequest, source: Source, fields: Mapping[str, str]) -> Bucket:
    """The bucket that makes a proof of work valid once.

    Raises: WebhookError 403 without a proof.
    """
    proof = fields.get(PROOF_FIELD, "").strip()
    header = request.headers.get(b"x-webhook-secret")
    secret = request.rest.rpartition("/")[2] if header is None else header.decode("latin-1")
    bits, now_s = int(source.options.proof_of_work), request.ctx.now_us() // 1_000_000
    if not is_proof(proof, secret, bits, now_s=now_s):
        raise _no_proof(request, source)
    return form_limit.once(request.ctx, source, proof, 2 * PROOF_VALID_S * 1_000_000)


def _no_proof(request: WebhookRequest, source: Source) -> WebhookError:
    message = "The form has no valid proof of work, or was sent before."
    return not_taken(WebhookError(403, "proof_required", message), source, request.headers, AGAIN)


def _too_many(request: WebhookRequest, source: Source, refusal: LimitReached) -> WebhookError:
    wait_s = max(1, -(-(refusal.until_us - request.ctx.now_us()) // 1_000_000))
    of = "this address" if refusal.bucket.of == "address" else "this form"
    error = WebhookError(
        429,
        "too_many",
        f"Too many submissions of {of}; send it again in {wait_s} s.",
        headers=((b"retry-after", b"%d" % wait_s),),
    )
    return not_taken(error, source, request.headers, WAIT)


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


def read(body: bytes, content_type: str, honeypot: str) -> Submission:
    """The submission in a body. Raises: Unreadable.

    `honeypot`: a field that people do not see; a robot fills it in.
    """
    values = read_fields(body, content_type)
    trapped = bool(honeypot) and bool(values.pop(honeypot, "").strip())
    return Submission(
        answers=tuple(
            FormField(name, "", value)
            for name, value in values.items()
            if not name.startswith(("_", "utm_"))
        ),
        form_key=line(values.get("_form", ""))[:_MAX_NAME],
        utm={
            name[4:]: value.strip()[:1024]
            for name, value in values.items()
            if name in _UTM and value.strip()
        },
        ignored="spam" if trapped else "",
    )


def read_fields(body: bytes, content_type: str) -> dict[str, str]:
    """The fields in a body by their names, hidden ones too, without files. Raises: Unreadable."""
    try:
        parts = read_parts(body, content_type, most=_MAX_PARTS)
    except Broken as broken:
        raise Unreadable(_CODES.get(broken.fault, "not_a_form")) from None
    if body.strip() and not parts:
        raise Unreadable("not_a_form")
    fields = [(part.name, part.data) for part in parts if part.name and not part.is_file]
    joined: dict[str, list[str]] = {}
    for name, value in _decoded(fields, content_type):
        # The name is cut, because some form builders use the whole question as the name.
        joined.setdefault(name[:_MAX_NAME], []).append(value)
    check_count(len(joined))
    return {name: bounded(", ".join(filter(None, values))) for name, values in joined.items()}


def _decoded(pairs: list[tuple[bytes, bytes]], content_type: str) -> list[tuple[str, str]]:
    """Names and values in the encoding that the browser used."""
    charset = dict(pairs).get(b"_charset_", b"").decode("latin-1").strip().lower()
    _, _, stated = content_type.lower().partition("charset=")
    charset = charset or stated.split(";", 1)[0].strip(' "')
    western = charset in ("iso-8859-1", "latin1", "windows-1252")
    for encoding in ("windows-1252",) if western else ("utf-8", "windows-1252"):
        try:
            return [(name.decode(encoding), value.decode(encoding)) for name, value in pairs]
        except UnicodeDecodeError:
            continue
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs]
