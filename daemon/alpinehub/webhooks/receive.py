"""Common to Wix, Google Ads and HTML forms: the body is stored unchanged and interpreted later.

    POST .... one commit: the row `received`, the event inbox.received .... answer
    event ... interpretation (inbox/processing.py): mapped, or in the review list, or ignored

These senders cannot be changed, so no submission is refused for what its fields say: only for an
unknown secret (401), a body that is too large (413), compressed or not a form (415), or empty
(400); an HTML form's also as form.py says. An operator can mend any other mistake.

A crash between the two steps loses nothing: row and event commit together, and the event is
delivered again.
"""

from __future__ import annotations

from alpinehub.directory import directory_of
from alpinehub.models import Source
from alpinehub.webhooks.authentication import one_by_secret
from alpinehub.webhooks.endpoint import WebhookError, WebhookRequest, kept_headers
from cordata import Tx, request_id

EVENT = "inbox.received"


async def receive(request: WebhookRequest, source: Source, body: bytes) -> None:
    """Store the body of a request; returns after the commit. Raises: StoreUnavailable."""
    await request.ctx.run(lambda tx: store(tx, request, source, body))


async def store(tx: Tx, request: WebhookRequest, source: Source, body: bytes) -> None:
    """The unit of `receive`."""
    row = await tx.fetch_one(
        "inbox_receive",
        source_id=source.id,
        now=tx.now_us,
        headers=kept_headers(request.headers),
        body=body,
        request_id=request_id.get(),
    )
    assert row is not None
    await tx.publish(EVENT, {"inbox_id": row["id"], "source_id": source.id})


async def source_of_path(request: WebhookRequest, kind: str) -> Source:
    """The source named in the path. Raises: WebhookError 401, StoreUnavailable.

    A hotel's code may contain a "/", a secret in a path does not. If a request has the secret in
    the path and in a header, both must be right.
    """
    snapshot = await directory_of(request.ctx).snapshot()
    header = request.headers.get(b"x-webhook-secret")
    if header is not None:
        in_path = "/" + header.decode("utf-8", "replace")
        hotel = request.rest.strip("/").removesuffix(in_path)
        return one_by_secret(request.ctx, snapshot, kind, header, hotel)
    hotel, _, secret = request.rest.rpartition("/")
    return one_by_secret(request.ctx, snapshot, kind, secret.encode("utf-8", "replace"), hotel)


async def read_body(request: WebhookRequest) -> bytes:
    """The body. Raises: WebhookError, 400 if it is empty."""
    body = await request.body()
    if not body.strip():
        raise WebhookError(400, "empty", "The body is empty.")
    return body
