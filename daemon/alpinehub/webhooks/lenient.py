"""POST /api/webhook/wix, /google and /form: senders that nobody can teach, so they are not refused.

Only who is not known (401), what is too large (413), packed or no form at all (415), or empty (400)
is refused; for the rest a sender could do nothing about the answer, but an operator can.
"""

from __future__ import annotations

from alpinehub.directory import Snapshot, directory_of
from alpinehub.multipart import media_type
from alpinehub.party import Source
from alpinehub.webhooks import google as leads
from alpinehub.webhooks.authentication import one_by_secret, unauthorized
from alpinehub.webhooks.endpoint import Call, Reply, kept_headers, require_plain
from alpinehub.webhooks.problem import Refused
from alpinehub.webhooks.receiving import receive
from alpinehub.webhooks.sheet import Unreadable
from alpinehub.webhooks.thanks import thanks

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
    require_plain(call.headers)
    content_type = call.headers.get(b"content-type", b"").decode("latin-1")
    if media_type(content_type) not in _FORMS:
        raise Refused(415, "unsupported_type", f"The body must be {' or '.join(_FORMS)}.")
    await receive(call.ctx, source, await _body(call), headers=kept_headers(call.headers))
    return thanks(source, call.headers)


async def _snapshot(call: Call) -> Snapshot:
    directory = directory_of(call.ctx)
    return directory.remembered or await directory.current()


def _source_of_path(call: Call, snapshot: Snapshot, kind: str) -> Source:
    """The source that a path names. Raises: Refused 401.

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
        raise Refused(400, "empty", "The body is empty.")
    return body
