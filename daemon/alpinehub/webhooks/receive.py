"""Wix, Google Ads and HTML forms: a submission is interpreted, and stored in one unit of work.

    body -> fields -> interpretation -> COMMIT -> answer
                           |
                           +-- mapped ..... a row of the inbox, and its reservation (intake.py)
                           +-- unmapped ... a row of the inbox: the review list; and an alert
                           +-- a test ..... a row of the inbox
                           +-- spam ....... only counted

These senders cannot be changed, so no submission is refused for what its fields say: only for an
unknown secret (401), a body that is too large (413), compressed or not a form (415), or empty
(400); an HTML form's also as form_endpoint.py says. An operator can mend any other mistake. What
cannot be interpreted or stored by an error of the hub goes to the review list, too, and is
interpreted again when the hub is corrected.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from alpinehub import counts
from alpinehub.asgi import Reply
from alpinehub.directory import directory_of
from alpinehub.intake import (
    NormalisedSubmission,
    Prepared,
    TooManyConflicts,
    prepare,
    run_until_stored,
    store_in_unit,
)
from alpinehub.models import Source
from alpinehub.webhooks import form_shapes, google
from alpinehub.webhooks.authentication import one_by_secret, unauthorized
from alpinehub.webhooks.endpoint import (
    WebhookError,
    WebhookRequest,
    kept_content_type,
    kept_headers,
    require_plain,
)
from alpinehub.webhooks.form_limit import Bucket
from alpinehub.webhooks.interpretation import Ignored, Mapped, Received, Unmapped, interpret_by
from alpinehub.webhooks.problems import HUB_ERROR, next_step, shell_word
from alpinehub.webhooks.submission import Unreadable
from cordata import Context, StoreUnavailable, Tx, request_id


async def post_wix(request: WebhookRequest) -> Reply:
    """POST /wix/{hotel}/{secret}; or /wix/{hotel} with X-Webhook-Secret."""
    source = await source_of_path(request, "wix")
    require_plain(request.headers)
    await receive(request, source, received_of(request, source, await read_body(request)))
    return Reply(200, b'{"status":"received"}')


async def post_google(request: WebhookRequest) -> Reply:
    """POST /google or /google/{hotel}; the secret is the google_key of the body."""
    snapshot = await directory_of(request.ctx).snapshot()
    require_plain(request.headers)
    body = await read_body(request)
    try:
        key, kept = google.take_key(body)
    except Unreadable:
        raise unauthorized("A valid secret is required.") from None
    secret = key.encode("utf-8", "surrogatepass")
    source = one_by_secret(request.ctx, snapshot, "google", secret, request.rest.strip("/") or None)
    await receive(request, source, received_of(request, source, kept))
    return Reply(200, b"{}")


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


def received_of(request: WebhookRequest, source: Source, body: bytes) -> Received:
    """The submission of a request that has just arrived."""
    return Received(
        kind=source.kind,
        body=body,
        content_type=kept_content_type(kept_headers(request.headers)),
        honeypot=source.options.honeypot,
        received_at=request.ctx.now_us(),
    )


async def receive(
    request: WebhookRequest, source: Source, received: Received, proof: Bucket | None = None
) -> bool:
    """Interpret a submission and store it; returns after the commit.

    Returns False, and stores nothing, if the proof of work was used before. Raises:
    StoreUnavailable.
    """
    ctx = request.ctx
    row = {
        "source_id": source.id,
        "received_at": received.received_at,
        "headers": kept_headers(request.headers),
        "body": received.body,
        "request_id": request_id.get(),
    }
    try:
        unit = _interpret(source, received, row, proof)
        stored = await run_until_stored(ctx.store, unit, batch=unit.can_batch)
    except Exception as error:
        if isinstance(error, StoreUnavailable) and not isinstance(error, TooManyConflicts):
            raise
        ctx.log.warning("a submission cannot be interpreted or stored", exc_info=True)
        unit = _Unit(source, row, proof, Unmapped((HUB_ERROR,)))
        stored = await run_until_stored(ctx.store, unit, batch=False)
    if not stored:
        return False
    found = unit.found
    if isinstance(found, Unmapped):
        _alert(ctx, source, found)
    if not isinstance(found, Ignored) and found.shape is not None:
        await form_shapes.see(ctx, source, found.shape, unit.row["received_at"])
    return True


def _interpret(
    source: Source, received: Received, row: dict[str, Any], proof: Bucket | None
) -> _Unit:
    found, mapping = interpret_by(source.mapping, received, source.hotel)
    if not isinstance(found, Mapped):
        return _Unit(source, row, proof, found)
    submission = NormalisedSubmission(
        **row,
        hotel=source.hotel,
        data=found.data,
        external_id=found.external_id,
        content_is_id=True,
        mapped_by=found.history_detail(mapping),
    )
    return _Unit(source, row, proof, found, (submission, prepare(submission, row["received_at"])))


class _Unit(Struct, frozen=True):
    """The unit of work that stores a submission, unless its proof of work was used before."""

    source: Source
    #: Columns of its row in the inbox.
    row: dict[str, Any]
    #: The bucket of its proof of work.
    proof: Bucket | None
    found: Mapped | Unmapped | Ignored
    #: If it was mapped: what is stored.
    mapped: tuple[NormalisedSubmission, Prepared] | None = None

    @property
    def can_batch(self) -> bool:
        """Whether it may be batched: no result of a write, or lock, decides what it does."""
        has_id = self.mapped is None or self.mapped[0].external_id is not None
        return has_id and self.proof is None

    async def __call__(self, tx: Tx, *, batch: bool) -> bool:
        """Store it. Returns False if the proof of work was used before."""
        if self.proof is not None and await self.proof.take(tx):
            return False
        found = self.found
        if self.mapped is not None:
            submission, prepared = self.mapped
            await store_in_unit(tx, submission=submission, prepared=prepared, batch=batch)
        elif isinstance(found, Unmapped):
            error = "; ".join(found.problems)
            await self._add(tx, state="review", error=error, external_id=found.external_id)
        elif isinstance(found, Ignored):
            await counts.add(tx, self.source.hotel.id, found.outcome)
            if found.outcome != "spam":  # robots would fill the table
                await self._add(tx, state="rejected", outcome=found.outcome)
        return True

    async def _add(self, tx: Tx, **result: str | None) -> None:
        await tx.insert("inbox", **self.row, handled_at=tx.now_us, **result)


def _alert(ctx: Context, source: Source, found: Unmapped) -> None:
    hotel, problems = source.hotel.code, found.problems
    of = f"a submission of source {source.name} of hotel {hotel}"
    if HUB_ERROR in problems:
        cause, what = "inbox-failed", f"an error of the hub keeps {of} in review"
    else:
        cause = f"unmapped:{source.id}"
        what = f"{of} waits for review: {', '.join(problems[:10])}"
    wanted = f"--hotel {shell_word(hotel)} --source {shell_word(source.name)}"
    step = next_step(problems, hotel=hotel, source=source.name, id_="ID")
    ctx.alert(cause, f"{what}; `alpinehub inbox list {wanted}` shows its ID; {step}", ids=[hotel])
